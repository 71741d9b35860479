"""Pools created, configured, read, checked against their provider, and exported as files."""
