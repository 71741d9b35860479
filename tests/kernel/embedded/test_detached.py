"""Processes that outlive their parent."""

import os
import signal
from pathlib import Path

import pytest

from project.kernel.embedded import detached


def test_record_is_written_once_the_command_line_can_be_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """/proc shows an empty one for a moment: `find` would miss a process without a record."""
    shown: list[list[str]] = [[], [], ["sh", str(tmp_path)]]
    left: list[int] = []
    monkeypatch.setattr(detached, "command_line", lambda process: shown.pop(0))
    monkeypatch.setattr(detached, "adopt", lambda folder, process: left.append(len(shown)))
    process = detached.start(
        ["/bin/sh", "-c", "kill -STOP $$"],
        tmp_path,
        log=tmp_path / "log",
        environment=os.environ,
        cwd=tmp_path,
        mark=1,
    )
    os.kill(process.pid, signal.SIGKILL)
    assert detached.wait_until_gone([process.pid], 20) == []
    assert left == [0]
