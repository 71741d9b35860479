"""The event log, its notifications after a commit, and the retention of old rows."""
