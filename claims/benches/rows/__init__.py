"""Rows for benches, written in bulk."""
