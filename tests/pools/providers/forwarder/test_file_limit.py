"""The limit of open files bounds the listeners and connections of a forwarder."""

from pathlib import Path

import pytest

from pools.providers.forwarder.process import forwarder
from pools.providers.forwarder.process.forwarder import Forwarder
from pools.providers.forwarder.process.plan import ForwardPlan, ListenerPlan
from pools.providers.forwarder.process.sockets import RESERVED_FILES
from tests.pools.providers.forwarder.helpers import LOCALHOST, free_ports, is_refused

FILES = 200


async def test_listener_beyond_the_limit_of_files_does_not_stop_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(forwarder, "raise_file_limit", lambda: FILES)
    first = free_ports(101)
    made = Forwarder(tmp_path, 1)
    listeners = [
        ListenerPlan("tcp", first, 60),
        ListenerPlan("tcp", first + 60, 41),
        ListenerPlan("udp", first, 40),
    ]
    try:
        await made.apply(ForwardPlan(1, (LOCALHOST,), listeners=tuple(listeners)))
        state = made.describe()
        problems = [each.get("problem") for each in state["listeners"]]  # type: ignore[attr-defined]
        assert problems[0] is problems[2] is None
        assert "needs 101 sockets, and the limit of open files is 200" in str(problems[1])
        assert is_refused(first + 60)
        assert state["most"] == (FILES - RESERVED_FILES - 100) // 2
        await made.apply(ForwardPlan(1, (LOCALHOST,), listeners=tuple(listeners[1:])))
        state = made.describe()
        assert state["most"] == (FILES - RESERVED_FILES - 81) // 2
    finally:
        made.end()
