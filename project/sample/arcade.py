"""The games of the sample's arcade. Each claim holds the ports of a game; the arcade routes them to
a room of this machine, and players enter through the ports. Standard library only.

The room of a listener has the number of the listener plus a constant, so that a restarted driver
finds the rooms of its claims.
"""

import time
from collections.abc import Callable
from datetime import datetime
from typing import Any

from project.sample.client import SampleClient, log_line
from project.sample.rooms import HOST, Door, Game, Rooms
from project.sample.scenario import ROOMS, game_of

AGAIN = 3.0  # seconds until a claim without an address is read again

After = Callable[[float, Callable[[], None]], None]


class Arcade:
    def __init__(self, client: SampleClient, rooms: Rooms, after: After) -> None:
        self.client, self.rooms, self.after = client, rooms, after

    def open(self, claim: dict[str, Any]) -> None:
        """Route the ports of a bound claim, and let its game begin."""
        number = claim["id"]
        ports = claim["ports"]
        rooms = {port["port"]: port["number"] + ROOMS for port in ports}
        answer = self.client.call(
            "PUT",
            f"claims/{number}/backend/",
            {
                "generation": claim["generation"],
                "ip": HOST,
                "ports": [rooms[own] for own in sorted(rooms)],
            },
        )
        if not answer.is_success:
            log_line(f"{claim['pool']} rejects a backend ({answer.status}): {answer.body}")
            return
        if not all(port["addresses"] for port in ports):
            self.after(AGAIN, lambda: self.open_later(number))
            return
        doors = tuple(
            Door(port["protocol"], tuple(port["addresses"]), port["number"] + ROOMS)
            for port in ports
        )
        work = game_of(claim["key"])
        age = time.time() - datetime.fromisoformat(claim["bound_at"]).timestamp()
        game = Game(
            claim=number,
            name=claim["owner"],
            doors=doors,
            players=work.players,
            opens_in=work.opens_after - age,
            breaks_in=work.breaks_after - max(age, work.opens_after),
            breaks_for=work.breaks_for,
            linger=work.linger,
        )
        self.rooms.start_game(game)

    def open_later(self, number: int) -> None:
        claim = self.client.call("GET", f"claims/{number}/")
        if claim.is_success and claim.body["state"] == "bound":
            self.open(claim.body)
