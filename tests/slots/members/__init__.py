"""Tests of slots, members."""
