"""Logs of runs: stored, read, and followed while they grow."""
