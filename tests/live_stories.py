"""Stories of live sockets in an event loop of their own, beside work in threads."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from django.db import connections

from project.kernel.live import hub as live_hub


def play(story: Callable[[], Awaitable[None]]) -> None:
    async def whole() -> None:
        try:
            await story()
        finally:
            await live_hub.hub().close()

    asyncio.run(whole())


async def in_thread(work: Callable[[], Any]) -> Any:
    """As a web request would, with a connection that does not stay."""

    def inner() -> Any:
        try:
            return work()
        finally:
            connections.close_all()

    return await asyncio.to_thread(inner)
