"""Tests of kernel, bench."""
