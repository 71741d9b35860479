"""Members and their slots: services, rows, liveness, restart, drain, tokens and timed chores."""
