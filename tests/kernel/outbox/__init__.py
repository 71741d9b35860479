"""Tests of kernel, outbox."""
