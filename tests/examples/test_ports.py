"""The game of the example is played through a forwarder."""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.pools.providers.forwarder.helpers import (
    LOCALHOST,
    free_ports,
    own_home,
    slot,
    start,
    sync,
)

GAME = Path(__file__).resolve().parents[2] / "examples" / "ports" / "game.py"


@contextmanager
def room(name: str, port: int) -> Iterator[None]:
    command = [sys.executable, str(GAME), "serve", name, str(port)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == f"{name} is open on port {port}\n"
        try:
            yield
        finally:
            process.kill()


def play(port: int) -> list[str]:
    command = [sys.executable, str(GAME), "play", LOCALHOST, str(port)]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()


def test_players_keep_their_port_while_the_room_moves(settings: Any, tmp_path: Path) -> None:
    port = free_ports(3)

    def door(to: int) -> list[Any]:
        return [
            slot(port, (LOCALHOST, to), lane=lane, protocol="tcp_udp") for lane in ("tcp", "udp")
        ]

    with own_home(settings, tmp_path), room("north", port + 1), room("south", port + 2):
        start(*door(port + 1))
        assert play(port) == ["welcome to north, ada", "north heard ahoy"]
        sync(*door(port + 2))
        assert play(port) == ["welcome to south, ada", "south heard ahoy"]
