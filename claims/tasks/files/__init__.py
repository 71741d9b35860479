"""Sealed files beside the database: sources, plans, and how long they are kept."""
