"""Tests of pools, lifecycle."""
