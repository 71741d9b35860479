"""Tests of kernel, events."""
