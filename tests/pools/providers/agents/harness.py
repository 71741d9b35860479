"""The harness of the provider agents for the conformance suite."""

from pools.providers.agents.provider import AgentsProvider
from tests.pools.providers.harness import Harness

HARNESSES = {"agents": Harness(AgentsProvider, failures=(), cleans=False)}
