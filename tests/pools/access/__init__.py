"""Tests of pools, access."""
