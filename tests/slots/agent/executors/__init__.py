"""Tests of slots, agent, executors."""
