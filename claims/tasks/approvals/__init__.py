"""Approval and rejection of plans, reservations, and lost applies."""
