"""REST and pages about workspaces."""
