"""Pages and dialogs about claims and about members that drain."""
