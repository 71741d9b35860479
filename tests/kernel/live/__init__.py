"""Tests of kernel, live."""
