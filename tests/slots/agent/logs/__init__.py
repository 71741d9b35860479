"""Tests of slots, agent, logs."""
