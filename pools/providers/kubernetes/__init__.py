"""Kubernetes provider: pods as members of a pool."""
