"""The background processes that an installation needs, and their health."""

from django.conf import settings
from django.utils.module_loading import import_string

from project.kernel.controllers import worker_liveness
from project.kernel.controllers.heartbeats import Health, check_loops
from project.kernel.outbox.relay import RELAYS


def expected_loops() -> list[str]:
    controllers = [import_string(name).name for name in settings.BERTH_CONTROLLERS]
    return [*controllers, *(relay.name for relay in RELAYS), worker_liveness.NAME]


def check_expected_loops() -> list[Health]:
    return check_loops(expected_loops())
