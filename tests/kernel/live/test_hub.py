"""The hub of live pages while sockets enter and leave."""

import asyncio
from contextlib import suppress
from typing import Any

from project.kernel.events.log import Position
from project.kernel.live.hub import Hub, JoiningSocket
from project.kernel.live.regions import OpenedRegion


class Socket:
    def __init__(self) -> None:
        self.watching: dict[str, OpenedRegion] = {}

    def push(self, key: str, frame: str) -> None: ...

    def recheck(self) -> None: ...


def test_socket_leaving_during_catch_up_stops_no_other() -> None:
    async def play() -> list[Socket]:
        hub, caught = Hub(), list[Socket]()
        one, two = Socket(), Socket()
        hub.sockets = {one, two}
        hub._joiners = [JoiningSocket(each, [], Position(1, 0)) for each in (one, two)]

        async def catch_up(joiner: Any) -> None:
            caught.append(joiner.socket)
            if joiner.socket is one:
                await hub.leave(one)

        hub._catch_up = catch_up  # type: ignore[method-assign]
        await hub._deliver([])
        return [each for each in (one, two) if each in caught]

    assert len(asyncio.run(play())) == 2


def test_socket_entering_while_the_last_leaves_keeps_its_log_reader() -> None:
    async def play() -> bool:
        hub = Hub()
        first, second = Socket(), Socket()
        is_ending = asyncio.Event()

        async def run(loop: Any) -> None:
            try:
                await asyncio.sleep(60)
            finally:
                is_ending.set()
                await asyncio.sleep(0.01)

        hub._keep_running = run  # type: ignore[method-assign]
        hub.enter(first)
        await asyncio.sleep(0)
        leaving = asyncio.create_task(hub.leave(first))
        await is_ending.wait()
        hub.enter(second)
        log = hub.log
        await leaving
        stays = hub.log is log
        await hub.leave(second)
        return stays

    assert asyncio.run(play())


def test_a_lost_cancellation_does_not_keep_a_closing_hub_waiting() -> None:
    """As when a client library turns it into a time limit of its own."""

    async def play() -> int:
        hub, lost = Hub(), list[object]()

        async def run(loop: Any) -> None:
            if not lost:
                lost.append(loop)
                with suppress(asyncio.CancelledError):
                    await asyncio.sleep(60)
            await asyncio.sleep(60)

        hub._keep_running = run  # type: ignore[method-assign]
        socket = Socket()
        hub.enter(socket)
        await asyncio.sleep(0)
        async with asyncio.timeout(20):
            await hub.leave(socket)
        return len(lost)

    assert asyncio.run(play()) == 1
