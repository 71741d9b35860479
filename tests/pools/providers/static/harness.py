"""The harness of the provider static for the conformance suite."""

from pools.providers.static.provider import StaticProvider
from tests.pools.providers.harness import Harness

HARNESSES = {"static": Harness(StaticProvider, failures=())}
