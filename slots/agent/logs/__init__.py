"""A run's log: secrets masked, buffered on disk, uploaded in order."""
