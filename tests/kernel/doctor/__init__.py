"""Tests of kernel, doctor."""
