"""Tests of claims, allocation, queues."""
