"""Settings of a single machine, with two more providers that have work to do outside."""

from project.settings.local import *  # noqa: F403
from project.settings.local import BERTH_PROVIDERS as SHIPPED

BERTH_PROVIDERS = [
    *SHIPPED,
    "tests.faults.shed.ShedProvider",
    "tests.faults.shed.YardProvider",
]
