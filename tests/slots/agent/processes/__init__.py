"""Tests of slots, agent, processes."""
