"""The control socket of a forwarder: one request and one answer a connection, as JSON. The socket
has mode 0600 in a folder of mode 0700, and the peer must be the same user.
"""

import asyncio
import json
import logging
import os
import socket
import struct
from collections.abc import Mapping

from pools.providers.forwarder.process.forwarder import Forwarder, PlanNotSaved, StaleRequest
from pools.providers.forwarder.process.plan import InvalidPlan, read_bind, read_options, read_plan

logger = logging.getLogger(__name__)

NAME = "control"
LARGEST = 8_000_000  # bytes of a request
PATIENCE = 10.0  # seconds for a request to arrive, and for its answer to leave
MOST = 16  # requests at once


class ControlServer:
    def __init__(self, forwarder: Forwarder) -> None:
        self._forwarder = forwarder
        self._slots = asyncio.Semaphore(MOST)

    async def start(self) -> asyncio.Server:
        """The working folder is that of the forwarder: a path from the root may be longer than a
        socket's name can be.
        """
        before = os.umask(0o177)
        try:
            return await asyncio.start_unix_server(self._serve, NAME, limit=LARGEST)
        finally:
            os.umask(before)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            if is_own(writer.get_extra_info("socket")):
                async with self._slots:
                    async with asyncio.timeout(PATIENCE):
                        request = await reader.readline()
                    answer = await self._answer(request)
                    writer.write(json.dumps(answer).encode() + b"\n")
                    async with asyncio.timeout(PATIENCE):
                        await writer.drain()
        except (OSError, ValueError) as error:  # also TimeoutError, and a line that is too long
            logger.warning("a request was not answered: %s", error)
        finally:
            writer.close()

    async def _answer(self, request: bytes) -> Mapping[str, object]:
        try:
            given = json.loads(request)
            if not isinstance(given, dict):
                raise InvalidPlan("the request is not an object")
            await self._perform(given)
        except StaleRequest as error:
            return {"error": "stale", "text": str(error)}
        except PlanNotSaved as error:
            return {"error": "unsaved", "text": str(error)}
        except (InvalidPlan, ValueError) as error:
            return {"error": "invalid", "text": str(error)}
        return self._forwarder.describe()

    async def _perform(self, given: Mapping[str, object]) -> None:
        match given.get("do"):
            case "apply":
                await self._forwarder.apply(read_plan(given.get("plan")))
            case "options":
                incarnation, bind = given.get("incarnation"), given.get("bind")
                if not isinstance(incarnation, int) or not isinstance(bind, list):
                    raise InvalidPlan("incarnation or bind is missing")
                await self._forwarder.change_options(
                    incarnation, read_bind(bind), read_options(given.get("options"))
                )
            case "describe":
                pass
            case _:
                raise InvalidPlan("do is none of apply, options and describe")


def is_own(peer: socket.socket) -> bool:
    """Whether this user, or root, is at the other end."""
    if not hasattr(socket, "SO_PEERCRED"):
        return True  # the modes of the socket and its folder decide
    found = peer.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
    return struct.unpack("3i", found)[1] in (os.geteuid(), 0)
