"""Tests of claims, lifecycle, pages."""
