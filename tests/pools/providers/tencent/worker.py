"""A worker process that tests can kill: for each order it forks a child, which calls `sync`.

An order is a line of JSON with a pickled pool and member. The answers are a line with the child's
pid, and one with how the child ended. `python -m tests.pools.providers.tencent.worker` starts it.
"""

import base64
import json
import os
import pickle
import signal
import subprocess
import sys
import threading
from importlib import import_module
from pathlib import Path

import django

from pools.providers.base import MemberSnapshot, PoolSnapshot
from pools.providers.tencent import writes
from pools.providers.tencent.provider import TencentProvider
from tests.pools.providers.memory_journal import MemoryJournal
from tests.pools.providers.tencent.harness import FAST_POLL, FreePacer

ROOT = Path(__file__).resolve().parents[4]


class KillableWorker:
    """Runs syncs one after the other, each in a process of its own."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", __name__],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            cwd=ROOT,
            text=True,
        )
        self._pid = 0
        self._has_pid = threading.Event()

    def sync(self, pool: PoolSnapshot, member: MemberSnapshot) -> str:
        """How the process ended: done, failed or killed."""
        assert self._process.stdin and self._process.stdout
        order = {
            "snapshots": base64.b64encode(pickle.dumps((pool, member))).decode(),
            "environment": {
                name: value for name, value in os.environ.items() if name.startswith("TENCENT")
            },
        }
        self._has_pid.clear()
        print(json.dumps(order), file=self._process.stdin, flush=True)
        self._pid = int(self._process.stdout.readline())
        self._has_pid.set()
        return self._process.stdout.readline().strip()

    def kill(self) -> None:
        """kill -9 of the process that syncs now."""
        assert self._has_pid.wait(10)
        os.kill(self._pid, signal.SIGKILL)

    def close(self) -> None:
        assert self._process.stdin and self._process.stdout
        self._process.stdin.close()
        self._process.wait(10)
        self._process.stdout.close()


def main() -> None:
    django.setup()
    import_module("pools.providers.tencent.sdk")  # once, for all children
    TencentProvider.pacer, TencentProvider.journal = FreePacer(), MemoryJournal()
    writes.FIRST_POLL = FAST_POLL
    for line in sys.stdin:
        order = json.loads(line)
        child = os.fork()
        if child == 0:
            _run(order)
        print(child, flush=True)
        _, status = os.waitpid(child, 0)
        if os.WIFSIGNALED(status):
            print("killed", flush=True)
        else:
            print("failed" if os.WEXITSTATUS(status) else "done", flush=True)


def _run(order: dict[str, str]) -> None:
    status = 1
    try:
        os.environ.update(order["environment"])  # type: ignore[arg-type]
        pool, member = pickle.loads(base64.b64decode(order["snapshots"]))
        TencentProvider().sync(pool, member)
        status = 0
    finally:
        os._exit(status)


if __name__ == "__main__":
    main()
