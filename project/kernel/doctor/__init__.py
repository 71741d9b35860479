"""Invariant checks with repairs, the health of background processes, and what probes and
Prometheus read.
"""
