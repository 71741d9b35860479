"""Shared parts of pages and of the admin: confirm dialogs, formatting and admin base classes."""
