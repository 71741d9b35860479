"""Tests of kernel, embedded."""
