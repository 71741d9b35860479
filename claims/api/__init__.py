"""REST about pools, claims, events and workspaces."""
