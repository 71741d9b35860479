"""Upgrades from the database of an earlier release."""
