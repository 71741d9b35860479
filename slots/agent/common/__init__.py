"""Errors, JSON types, log and state folder, which every part of the agent uses."""
