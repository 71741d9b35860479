"""Tests of claims, tasks."""
