"""Settings of a single machine, with one more provider that has cleaning to do outside."""

from project.settings.local import *  # noqa: F403

BERTH_PROVIDERS = [
    "pools.providers.static.provider.StaticProvider",
    "tests.faults.shed.ShedProvider",
]
