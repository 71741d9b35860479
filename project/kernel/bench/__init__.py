"""Benchmarks: the registry, worker processes, the PostgreSQL baseline and the benchmark of the
event log.
"""
