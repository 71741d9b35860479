"""Secrets of a pool: services, REST API and re-encryption."""
