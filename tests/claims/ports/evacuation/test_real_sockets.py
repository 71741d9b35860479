"""An evacuation over the forwarder provider: players reach a claim at its old address until the new
one works, and their connections end in peace.
"""

import socket
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from claims.allocation.claim_view import ClaimView
from claims.ports.backends import BackendRequest, set_backend
from claims.ports.evacuation.mover import undo_evacuation
from claims.ports.evacuation.returns import return_claim
from pools.lifecycle.services import create_pool
from pools.models import Pool
from project.kernel.outbox.operations import perform_due
from slots.models import Evacuation
from slots.sync.watcher import observe_pool
from tests.claims.helpers import again, ask, sql
from tests.claims.ports.evacuation.helpers import evacuate, step
from tests.pools.providers.forwarder.helpers import (
    LOCALHOST,
    TcpTarget,
    ask_tcp,
    call,
    exchange,
    free_ports,
    is_refused,
    own_home,
)
from tests.waiting import wait_until

pytestmark = pytest.mark.usefixtures("committed_tables")


def make_doors(port: int) -> Pool:
    pool = create_pool(
        {
            "name": "doors",
            "provider": {"kind": "forwarder", "health": {"enabled": False}, "drain": "30s"},
            "slots": {"ports": f"{port}-{port + 1}", "protocols": ["tcp"]},
            "backends": {"networks": [f"{LOCALHOST}/32"], "ports": "1024-65535"},
            "members": {"list": ["a", "b"]},
        }
    )
    work(pool)
    return pool


def work(pool: Pool) -> None:
    """All open operations, also those that are due later."""
    sql("UPDATE kernel_operation SET due_at = now() WHERE done_at IS NULL")
    perform_due("forwarder")
    observe_pool(Pool.objects.get(pk=pool.pk))


def open_door(target: TcpTarget) -> tuple[Pool, ClaimView]:
    """A pool of forwarders, and a claim whose port leads to the target."""
    pool = make_doors(free_ports(2))
    claim = ask("doors", ports="80/TCP")
    backend = BackendRequest(LOCALHOST, port=target.at[1])
    set_backend(claim_id=claim.id, generation=claim.generation, backend=backend)
    work(pool)
    return pool, claim


@dataclass
class Player:
    """A player of a claim, connected at the address that the claim has on member a."""

    pool: Pool
    claim: ClaimView
    address: str
    connection: socket.socket

    @property
    def place(self) -> tuple[str, int]:
        host, port = self.address.split(":")
        return host, int(port)

    def check_back(self) -> None:
        """The claim is reached at its former address, and the player has stayed connected."""
        host, port = self.place
        after = again(self.claim).ports[0]
        assert after["address"] == self.address and after["ready"]
        assert exchange(self.connection, b"still here").endswith(b"still here")
        assert ask_tcp(port, b"ahoy", host).endswith(b"ahoy")
        self.connection.close()


def join_game(target: TcpTarget) -> Player:
    pool, claim = open_door(target)
    address = again(claim).ports[0]["address"]
    assert address is not None
    host, port = address.split(":")
    return Player(pool, claim, address, call(host, int(port)))


def test_players_keep_their_connections_and_find_the_new_address(
    settings: Any, tmp_path: Path
) -> None:
    with own_home(settings, tmp_path, "127.77.0.0/24"), TcpTarget() as target:
        player = join_game(target)
        pool, claim, old = player.pool, player.claim, player.address
        assert again(claim).ports[0]["ready"]
        old_host, old_port = player.place
        found = evacuate("a", stays=True)
        assert step(found) == "moved"
        # The workers of the old load balancer come first: it serves on.
        assert step(found) == "waits"
        assert ask_tcp(old_port, b"ahoy", old_host).endswith(b"ahoy")
        work(pool)
        new = again(claim).ports[0]["address"]
        assert new is not None and new != old and again(claim).ports[0]["ready"]
        new_host, new_port = new.split(":")
        assert ask_tcp(int(new_port), b"ahoy", new_host).endswith(b"ahoy")
        assert ask_tcp(old_port, b"ahoy", old_host).endswith(b"ahoy")
        assert step(found) == "arrived"
        work(pool)
        assert is_refused(old_port, old_host)
        assert exchange(player.connection, b"still here").endswith(b"still here")
        player.connection.close()

        def is_over() -> bool:
            work(pool)
            step(found)
            return not Evacuation.objects.exists()

        wait_until(is_over)
        assert ask_tcp(int(new_port), b"ahoy", new_host).endswith(b"ahoy")


def test_an_undo_before_the_new_address_works_interrupts_no_player(
    settings: Any, tmp_path: Path
) -> None:
    with own_home(settings, tmp_path, "127.77.0.0/24"), TcpTarget() as target:
        player = join_game(target)
        found = evacuate("a")
        step(found)
        undo_evacuation(member_id=found)
        work(player.pool)
        player.check_back()


def test_claim_that_goes_back_is_reached_at_its_old_address_again(
    settings: Any, tmp_path: Path
) -> None:
    with own_home(settings, tmp_path, "127.77.0.0/24"), TcpTarget() as target:
        player = join_game(target)
        found = evacuate("a")
        step(found)
        work(player.pool)
        assert step(found) == "arrived"
        work(player.pool)
        host, port = player.place
        assert is_refused(port, host), "the old listener drains while the player stays"
        return_claim(member_id=found, claim_id=player.claim.id, reason="the attack moved along")
        work(player.pool)
        player.check_back()
