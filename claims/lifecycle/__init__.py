"""How claims change and end: release, cancel, expiry, lost member, drain, deleted pool."""
