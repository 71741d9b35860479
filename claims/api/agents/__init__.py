"""REST for agents, under /api/v1/agent/. They call with the token of their member, and only about what is on it."""
