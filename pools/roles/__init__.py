"""Roles granted and withdrawn, and the REST API for tokens and grants."""
