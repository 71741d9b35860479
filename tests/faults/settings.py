"""What somebody runs on one machine, with one provider more: it has something to do outside."""

from project.settings.local import *  # noqa: F403

BERTH_PROVIDERS = ["pools.providers.static.StaticProvider", "tests.faults.shed.ShedProvider"]
