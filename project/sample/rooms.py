"""The game rooms of the sample and their players: small servers of this machine, and clients that
reach them only through the ports that claims hold. Standard library only.

All of them run in one event loop in a thread of the driver, so that they end with it.
"""

import asyncio
import threading
from collections.abc import Callable, Collection, Coroutine, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from random import Random
from typing import cast

from project.sample.client import log_line

HOST = "127.0.0.1"
PAUSE = (4.0, 9.0)  # seconds between two moves of a player
RETRY = 2.0  # seconds until a player or a room tries again
PATIENCE = 5.0  # seconds for an answer of a room
TRIES = 30  # to open a room whose port the room before still uses


@dataclass(frozen=True, slots=True)
class Door:
    """A listener of the claim, and the port of the room behind it."""

    protocol: str  # TCP or UDP
    addresses: tuple[str, ...]  # host:port of the listener
    room: int


@dataclass(frozen=True, slots=True)
class Game:
    claim: int
    name: str
    doors: tuple[Door, ...]
    players: int
    opens_in: float  # seconds
    breaks_in: float  # seconds until the room does not answer for a while; negative: never
    breaks_for: float
    linger: float  # seconds that players stay after the end of the claim


class Rooms:
    def __init__(self) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None
        self._ended: dict[int, asyncio.Event] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    def start_game(self, game: Game) -> None:
        """Open the rooms of a claim and send players. A repeated call has no effect."""
        if self._loop is None:
            self._loop = asyncio.new_event_loop()
            self._thread = threading.Thread(
                target=self._loop.run_forever, name="rooms", daemon=True
            )
            self._thread.start()
        self._loop.call_soon_threadsafe(self._start, game)

    def end_game(self, claim: int) -> None:
        self._call(partial(self._end, claim))

    def end_others(self, claims: Collection[int]) -> None:
        """End the games of all other claims."""
        self._call(partial(self._end_others, frozenset(claims)))

    def close(self) -> None:
        """Close all rooms, and the connections of all players."""
        if self._loop is None:
            return
        asyncio.run_coroutine_threadsafe(self._cancel_all(), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()
        self._loop = None

    def _call(self, call: Callable[[], None]) -> None:
        if self._loop is not None:
            self._loop.call_soon_threadsafe(call)

    # -- in the loop ----------------------------------------------------------
    def _start(self, game: Game) -> None:
        if game.claim not in self._ended:
            ended = self._ended[game.claim] = asyncio.Event()
            self._spawn(play_game(game, ended))

    def _end(self, claim: int) -> None:
        if claim in self._ended:
            self._ended.pop(claim).set()

    def _end_others(self, claims: frozenset[int]) -> None:
        for claim in self._ended.keys() - claims:
            self._end(claim)

    async def _cancel_all(self) -> None:
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)

    def _spawn(self, work: Coroutine[object, object, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


async def play_game(game: Game, ended: asyncio.Event) -> None:
    """Until the claim has ended and the players have left."""
    players: list[asyncio.Task[None]] = []
    room = Room(game)
    try:
        if await wait_for_end(ended, game.opens_in) or not await room.open():
            return
        for number in range(game.players):
            players.append(asyncio.create_task(visit_room(game.doors, f"{game.name}-{number}")))
        if game.breaks_in >= 0 and not await wait_for_end(ended, game.breaks_in):
            room.close()
            await wait_for_end(ended, game.breaks_for)
            await room.open()
        await ended.wait()
        await asyncio.sleep(game.linger)
    finally:
        for player in players:
            player.cancel()
        await asyncio.gather(*players, return_exceptions=True)
        room.close()


async def wait_for_end(ended: asyncio.Event, seconds: float) -> bool:
    """Whether the claim ended within the time."""
    with suppress(TimeoutError):
        async with asyncio.timeout(max(0.0, seconds)):
            await ended.wait()
    return ended.is_set()


class Room:
    """Answers each line over TCP, and each datagram."""

    def __init__(self, game: Game) -> None:
        self.game = game
        self._servers: list[asyncio.Server] = []
        self._guests: set[asyncio.StreamWriter] = set()
        self._transports: list[asyncio.DatagramTransport] = []

    async def open(self) -> bool:
        """False: another program uses a port."""
        for _ in range(TRIES):
            try:
                for door in self.game.doors:
                    await self._open(door)
            except OSError as error:
                self.close()
                fault = error
                await asyncio.sleep(RETRY)
            else:
                return True
        log_line(f"the room of claim {self.game.claim} cannot open: {fault}")
        return False

    def close(self) -> None:
        for server in self._servers:
            server.close()
        for guest in self._guests:
            guest.close()
        for transport in self._transports:
            transport.close()
        self._servers, self._transports = [], []

    async def _open(self, door: Door) -> None:
        if door.protocol == "TCP":
            self._servers.append(await asyncio.start_server(self._serve, HOST, door.room))
        else:
            loop = asyncio.get_running_loop()
            made = await loop.create_datagram_endpoint(
                lambda: Answerer(self.game.name), local_addr=(HOST, door.room)
            )
            self._transports.append(made[0])

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._guests.add(writer)
        try:
            while line := await reader.readline():
                writer.write(f"{self.game.name} saw ".encode() + line)
                await writer.drain()
        except (OSError, ValueError):
            pass
        finally:
            self._guests.discard(writer)
            writer.close()


class Answerer(asyncio.DatagramProtocol):
    def __init__(self, name: str) -> None:
        self.name = name.encode()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.DatagramTransport, transport)

    def datagram_received(self, data: bytes, addr: tuple[str | object, int]) -> None:
        self.transport.sendto(self.name + b" heard " + data, addr)


async def visit_room(doors: Sequence[Door], name: str) -> None:
    """A player: enters through each door of the claim, and enters again whenever it falls shut."""
    draw = Random(name)
    await asyncio.gather(*(_stay(door, name, draw) for door in doors))


async def _stay(door: Door, name: str, draw: Random) -> None:
    host, _, port = draw.choice(door.addresses).rpartition(":")
    play = _talk if door.protocol == "TCP" else _shout
    while True:
        with suppress(OSError):  # also TimeoutError
            await play(host.strip("[]"), int(port), name, draw)
        await asyncio.sleep(RETRY)


async def _talk(host: str, port: int, name: str, draw: Random) -> None:
    async with asyncio.timeout(PATIENCE):
        reader, writer = await asyncio.open_connection(host, port)
    try:
        while True:
            writer.write(f"{name} moves\n".encode())
            async with asyncio.timeout(PATIENCE):
                if not await reader.readline():
                    return
            await asyncio.sleep(draw.uniform(*PAUSE))
    finally:
        writer.close()


async def _shout(host: str, port: int, name: str, draw: Random) -> None:
    loop = asyncio.get_running_loop()
    transport, _ = await loop.create_datagram_endpoint(
        asyncio.DatagramProtocol, remote_addr=(host, port)
    )
    try:
        while not transport.is_closing():
            transport.sendto(f"{name} shouts".encode())
            await asyncio.sleep(draw.uniform(*PAUSE))
    finally:
        transport.close()
