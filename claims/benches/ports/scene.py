"""Pools of load balancers on the strict clouds, and claims with backends, by the services."""

import time
from collections.abc import Mapping, Sequence
from typing import Any

from django.db import connection

from claims.allocation.api.long_poll import READY_CLAIMS
from claims.allocation.create import create_claim
from claims.allocation.requests.claim_request import parse_claim
from claims.benches.ports.performers import Performers
from claims.benches.rows.seed import WHO
from claims.ports.backends import BackendRequest, set_backend
from pools.lifecycle.services import create_pool
from pools.models import Member, Pool
from project.kernel.models import Operation
from slots.members.open_slots import align_pool_fully
from slots.members.services import activate_pool

BACKENDS = {"networks": ["10.0.0.0/16"], "ports": "1-65535"}
SET_UP = 120.0  # seconds until all load balancers exist
SET_UP_THREADS = 4  # each new load balancer locks the pool
POLL = 0.1


def make_balancers(
    name: str,
    provider: Mapping[str, object],
    slots: Mapping[str, object],
    count: int,
    performers: Performers,
) -> Pool:
    """A pool with load balancers that the provider has created, and without due operations."""
    pool = create_pool(
        {
            "name": name,
            "provider": dict(provider),
            "slots": dict(slots),
            "members": {"max": count, "list": [f"{name}-{i}" for i in range(count)]},
            "backends": BACKENDS,
        }
    )

    def are_ready() -> bool:
        is_any_left = Member.objects.filter(pool=pool).exclude(state="ready").exists()
        is_any_due = Operation.objects.filter(pool_id=pool.pk, done_at=None).exists()
        return not is_any_left and not is_any_due

    with performers.working(SET_UP_THREADS):
        wait_until(are_ready, SET_UP, "load balancers are missing", performers)
    activate_pool(pool_id=pool.pk)
    align_pool_fully(pool.pk)  # as the finalizer does
    return pool


def make_claims(pool: str, count: int, ports: Sequence[str]) -> list[int]:
    """Bound claims of these ports, each with a backend of its own."""
    found = []
    for i in range(count):
        body = {"pool": pool, "owner": f"pod:{i}", "ports": ",".join(ports)}
        claim = create_claim(parse_claim(body, requested_by=WHO))
        address = f"10.0.{i // 200 + 1}.{i % 200 + 1}"
        set_backend(claim_id=claim.id, generation=claim.generation, backend=BackendRequest(address))
        found.append(claim.id)
    return found


def seconds_until_ready(claims: Sequence[int], limit: float, performers: Performers) -> float:
    """The time from the begin of the work until the provider has confirmed all ports."""
    began = time.monotonic()
    left = list(claims)

    def are_ready() -> bool:
        with connection.cursor() as cursor:
            cursor.execute(READY_CLAIMS, [left])
            ready = {row[0] for row in cursor.fetchall()}
        left[:] = [claim for claim in left if claim not in ready]
        return not left

    with performers.working():
        wait_until(are_ready, limit, "ports are not ready", performers)
        return time.monotonic() - began


def wait_until(condition: Any, limit: float, otherwise: str, performers: Performers) -> None:
    end = time.monotonic() + limit
    while not condition():
        performers.check()
        if time.monotonic() > end:
            errors = Operation.objects.filter(done_at=None).exclude(error="").values_list("error")
            raise RuntimeError(f"{otherwise} after {limit:.0f} s. Errors: {list(errors[:3])}")
        time.sleep(POLL)
