"""Scaling policies, without a database."""
