"""Checks of invariants with their repairs, health of background processes, probes and metrics."""
