"""Tests of kernel, db."""
