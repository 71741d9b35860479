"""The supervisor of `make up` replaces a child by its spare."""

import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from project.kernel.embedded.service import STEADY
from project.kernel.embedded.supervisor import Child, Supervisor

# The spare of this child closes the pipe by which it would be told to begin, as a process does that
# is just dying.
DYING_SPARE = (
    "import os, sys, time\nif '--standby' in sys.argv:\n    os.close(int(sys.argv[-1]))\n    "
    "print('closed', flush=True)\ntime.sleep(600)\n"
)


@pytest.fixture
def supervisor(tmp_path: Path) -> Iterator[Supervisor]:
    handlers = {
        number: signal.getsignal(number)
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGCHLD)
    }
    supervisor = Supervisor(tmp_path)
    yield supervisor
    signal.set_wakeup_fd(-1)
    supervisor.stop()
    supervisor.selector.close()
    for number, handler in handlers.items():
        signal.signal(number, handler)


def test_spare_that_dies_with_its_child_ends_no_other_child(supervisor: Supervisor) -> None:
    """Out of memory, the kernel kills both at once: the child is started again, and the
    supervisor goes on.
    """
    child = Child("work", [sys.executable, "-c", DYING_SPARE], dict(os.environ), has_spare=True)
    supervisor.children.append(child)
    supervisor.start(child)
    first, now = child.process, child.spare_at
    assert first is not None
    supervisor._tend(child, now)
    assert child.spare is not None
    spare = child.spare.child.process
    assert spare is not None and spare.stdout is not None
    os.set_blocking(spare.stdout.fileno(), True)
    assert spare.stdout.readline() == b"closed\n"
    os.set_blocking(spare.stdout.fileno(), False)
    first.kill()
    first.wait()
    wait = supervisor._tend(child, child.restarts.started + STEADY + 1)
    assert wait <= 1.0
    assert child.process is None, "it is started again"
    spare.wait(10)
    supervisor._tend(child, child.restarts.again_at)
    assert child.process is not None and child.is_running()
    supervisor._tend(child, child.spare_at)
    supervisor._tend(child, child.spare_at)
    assert child.spare is not None and child.spare.child.is_running(), "with a spare of its own"
