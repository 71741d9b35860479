"""Runs of tasks: orders to agents, work orders, start, results, interruption."""
