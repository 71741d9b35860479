"""Invariants of members and slots for the doctor, and what Prometheus reads of their tables."""
