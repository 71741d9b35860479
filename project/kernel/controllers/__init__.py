"""Controller loops: runtime, periodic chores, heartbeats and probes."""
