"""Workspaces: locks, one serial claim at a time, and the pools that share one."""
