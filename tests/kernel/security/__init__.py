"""Tests of kernel, security."""
