"""Grants of roles, and the REST API for tokens and grants."""
