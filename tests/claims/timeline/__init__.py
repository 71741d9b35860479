"""Tests of claims, timeline."""
