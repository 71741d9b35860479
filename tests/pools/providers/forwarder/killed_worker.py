"""A worker that dies by SIGKILL at a step of its work. A program of its own, because SIGKILL cannot
be caught: `python -m tests.pools.providers.forwarder.killed_worker JOB`, JOB in JSON.
"""

import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

import django
from django.utils.module_loading import import_string


def die_at(dotted: str, when: str) -> None:
    """Die when this function is called, or after it has done its work."""
    module_name, _, name = dotted.rpartition(".")
    module, original = sys.modules[module_name], import_string(dotted)

    def dying(*args: Any, **more: Any) -> Any:
        if when == "after":
            original(*args, **more)
        os.kill(os.getpid(), signal.SIGKILL)

    setattr(module, name, dying)


def main(job: dict[str, Any]) -> None:
    django.setup()
    # Importable only once Django is set up.
    from django.conf import settings  # noqa: PLC0415

    from pools.providers.forwarder.provider import ForwarderProvider  # noqa: PLC0415
    from tests.pools.providers.forwarder import helpers  # noqa: PLC0415

    settings.BERTH_HOME, settings.BERTH_FORWARDER_BIND = Path(job["home"]), []
    die_at(job["function"], job["when"])
    slots = [helpers.slot(port, tuple(target)) for port, target in job["slots"]]
    member = helpers.member(job["state"], *slots, incarnation=job["incarnation"])
    ForwarderProvider().sync(helpers.pool(member), member)


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
