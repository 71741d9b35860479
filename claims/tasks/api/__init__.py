"""REST about runs, logs, sources, plans and approvals."""
