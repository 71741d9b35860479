"""Test settings with the providers of the conformance suite, for separate processes."""

from project.settings.test import *  # noqa: F403
from tests.pools.providers.fake_providers import ALL

BERTH_PROVIDERS = ALL
