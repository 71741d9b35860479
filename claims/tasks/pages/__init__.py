"""Pages and dialogs about tasks, plans and approvals."""
