"""Pages in a browser about claims, plans, approvals, workspaces and members that drain, and the questions they ask before they act."""
