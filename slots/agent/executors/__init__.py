"""Runs of one task: sources, the terraform and command executors, plan JSON and rescued state."""
