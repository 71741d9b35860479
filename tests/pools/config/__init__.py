"""Tests of pools, config."""
