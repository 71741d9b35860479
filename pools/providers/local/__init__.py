"""Provider of agents as processes on the machine of Berth, and the isolation of their tasks."""
