"""Kubernetes clusters for tests: one in memory and a real API server."""
