"""Tests of claims, workspaces."""
