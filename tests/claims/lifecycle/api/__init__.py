"""Tests of claims, lifecycle, api."""
