"""Rooms of games are servers, and players reach them through the doors of a claim."""

import asyncio
import socket
import threading
from collections.abc import Coroutine
from typing import Any

from project.kernel.embedded.process import free_port
from project.sample.rooms import HOST, Door, Game, Rooms, play_game
from tests.waiting import wait_until


def make_game(*doors: Door, **more: Any) -> Game:
    times = {"opens_in": 0.0, "breaks_in": -1.0, "breaks_for": 0.0, "linger": 0.0}
    return Game(**{"claim": 1, "name": "chess", "doors": doors, "players": 0, **times, **more})


def play(game: Game, watch: Coroutine[Any, Any, None]) -> None:
    """The game until the watch has ended, then until the players have left."""

    async def run() -> None:
        ended = asyncio.Event()
        playing = asyncio.create_task(play_game(game, ended))
        try:
            await watch
        finally:
            ended.set()
            await playing

    asyncio.run(run())


async def open_tcp(port: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    while True:
        try:
            return await asyncio.open_connection(HOST, port)
        except ConnectionError:  # refused, or reset while it closes
            await asyncio.sleep(0.01)


async def wait_closed(port: int) -> None:
    while True:
        try:
            _, writer = await asyncio.open_connection(HOST, port)
        except ConnectionError:  # refused, or reset while it closes
            return
        writer.close()
        await asyncio.sleep(0.01)


async def ask_tcp(port: int) -> bytes:
    reader, writer = await open_tcp(port)
    writer.write(b"ada moves\n")
    found = await reader.readline()
    writer.close()
    return found


def test_a_room_answers_over_tcp_and_udp() -> None:
    port = free_port()

    async def watch() -> None:
        assert await ask_tcp(port) == b"chess saw ada moves\n"
        loop = asyncio.get_running_loop()
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as player:
            player.setblocking(False)
            player.connect((HOST, port))
            await loop.sock_sendall(player, b"ahoy")
            assert await loop.sock_recv(player, 100) == b"chess heard ahoy"

    play(make_game(Door("TCP", (), port), Door("UDP", (), port)), watch())
    with socket.socket() as later:
        assert later.connect_ex((HOST, port)) != 0, "the room closes with the claim"


def test_a_room_that_breaks_down_opens_again() -> None:
    port = free_port()

    async def watch() -> None:
        await ask_tcp(port)
        await wait_closed(port)
        await ask_tcp(port)

    play(make_game(Door("TCP", (), port), breaks_in=0.1, breaks_for=0.1), watch())


def test_players_enter_through_the_door_and_leave_at_the_end() -> None:
    with socket.create_server((HOST, 0)) as door:
        address = f"{HOST}:{door.getsockname()[1]}"
        door.setblocking(False)

        async def watch() -> None:
            loop = asyncio.get_running_loop()
            for _ in range(2):
                player, _ = await loop.sock_accept(door)
                players.append(player)
                assert (await loop.sock_recv(player, 100)).endswith(b" moves\n")

        players: list[socket.socket] = []
        play(make_game(Door("TCP", (address,), free_port()), players=2), watch())
        for player in players:
            player.settimeout(10)
            assert player.recv(1) == b""
            player.close()


def test_games_of_other_claims_end() -> None:
    rooms, ports = Rooms(), [free_port(), free_port()]
    for claim, port in enumerate(ports):
        rooms.start_game(make_game(Door("TCP", (), port), claim=claim))

    def is_open(port: int) -> bool:
        with socket.socket() as player:
            return player.connect_ex((HOST, port)) == 0

    wait_until(lambda: all(map(is_open, ports)))
    rooms.end_others([1])
    wait_until(lambda: not is_open(ports[0]))
    assert is_open(ports[1])
    rooms.end_game(1)
    wait_until(lambda: not is_open(ports[1]))
    rooms.close()


def test_closed_rooms_leave_no_server_no_player_and_no_thread() -> None:
    rooms, port = Rooms(), free_port()
    with socket.create_server((HOST, 0)) as door:
        door.settimeout(20)
        address = f"{HOST}:{door.getsockname()[1]}"
        rooms.start_game(make_game(Door("TCP", (address,), port), players=2))
        players = [door.accept()[0] for _ in range(2)]
        rooms.close()
        for player in players:
            while player.recv(100):
                pass
            player.close()
    with socket.socket() as later:
        assert later.connect_ex((HOST, port)) != 0
    assert "rooms" not in {thread.name for thread in threading.enumerate()}
    rooms.close()  # has no effect
