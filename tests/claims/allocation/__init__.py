"""Tests of claims, allocation."""
