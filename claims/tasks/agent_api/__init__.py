"""REST and the WebSocket for agents, under /api/v1/agent/."""
