"""Tests of slots, sync."""
