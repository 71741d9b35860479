"""Workers that die by SIGKILL at a step of their work. SIGKILL cannot be caught, so a job runs in a
child that `python -m tests.pools.providers.forwarder.killed_worker` forks: its imports take longer
than a job.
"""

import json
import os
import signal
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import django
from django.utils.module_loading import import_string

SETTINGS = {"DJANGO_SETTINGS_MODULE": "project.settings.test"}


class KilledWorkers:
    """Runs jobs one after the other, until `close`."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", __name__],
            env={**os.environ, **SETTINGS},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def run(self, home: Path, step: tuple[str, str], state: str, **more: object) -> None:
        """Sync a member in this state until the worker is killed at this step."""
        assert self._process.stdin and self._process.stdout
        job = {"home": str(home), "step": step, "state": state, **more}
        print(json.dumps(job), file=self._process.stdin, flush=True)
        assert self._process.stdout.readline().strip() == f"{-signal.SIGKILL}"

    def close(self) -> None:
        self._process.communicate(timeout=10)


def die_at(dotted: str, when: str) -> None:
    """Die when this function is called, or after it has done its work."""
    module_name, _, name = dotted.rpartition(".")
    module, original = sys.modules[module_name], import_string(dotted)

    def dying(*args: Any, **more: Any) -> Any:
        if when == "after":
            original(*args, **more)
        os.kill(os.getpid(), signal.SIGKILL)

    setattr(module, name, dying)


def run(home: str, step: list[str], state: str, slots: Any = (), incarnation: int = 1) -> None:
    # Importable only once Django is set up.
    from django.conf import settings  # noqa: PLC0415

    from pools.providers.forwarder.provider import ForwarderProvider  # noqa: PLC0415
    from tests.pools.providers.forwarder import helpers  # noqa: PLC0415

    settings.BERTH_HOME, settings.BERTH_FORWARDER_BIND = Path(home), []
    die_at(*step)
    ports = [helpers.slot(port, tuple(target)) for port, target in slots]
    member = helpers.member(state, *ports, incarnation=incarnation)
    ForwarderProvider().sync(helpers.pool(member), member)


def main() -> None:
    django.setup()
    for name in ("pools.providers.forwarder.provider", "tests.pools.providers.forwarder.helpers"):
        import_module(name)  # once, for all children
    for line in sys.stdin:
        child = os.fork()
        if child == 0:
            try:
                run(**json.loads(line))
            finally:
                os._exit(1)
        _, status = os.waitpid(child, 0)
        print(os.waitstatus_to_exitcode(status), flush=True)


if __name__ == "__main__":
    main()
