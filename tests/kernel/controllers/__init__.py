"""Tests of kernel, controllers."""
