"""Tests of slots, agent, workdir."""
