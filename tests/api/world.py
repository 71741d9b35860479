"""Pools, claims and users that are made once for a module; each test rolls its changes back."""

import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db import connection, transaction

from claims.allocation.create import create_claim
from claims.allocation.requests.claim_request import ClaimRequest
from claims.lifecycle.release import Ending, release_slots
from claims.models import Plan, RescuedState, Run
from claims.tasks.files.sealed_files import save_file
from claims.workspaces.services import add_workspace, lock_workspace
from claims.workspaces.sharing import share_workspace
from pools.access.tokens import create_token
from pools.models import Pool
from pools.roles.services import create_grant
from pools.secrets.services import set_secret
from slots.sync.strays import Stray
from tests.api.helpers import make_pool

ONE_CHANGE = {
    "format_version": "1.2",
    "resource_changes": [
        {
            "address": "null_resource.a",
            "mode": "managed",
            "type": "null_resource",
            "name": "a",
            "change": {"actions": ["create"], "before": None, "after": {}},
        }
    ],
}


STRAY = 900_000_001  # an object outside of pool one names this member, which never was


@dataclass
class World:
    pool: Pool
    other: Pool
    claim: int  # bound, of another owner
    generation: int
    waiting: int  # of another owner
    pending: int  # a plan that waits for a person
    member: int
    slot: int
    token: int
    grant: int

    def fill(self, route: str) -> str:
        for name, value in (
            ("<name:pool_name>", self.pool.name),
            ("<id:claim_id>", self.claim),
            ("<id:member_id>", self.member),
            ("<id:slot_id>", self.slot),
            ("<id:stray_id>", STRAY),
            ("<id:token_id>", self.token),
            ("<id:grant_id>", self.grant),
            ("<workspace:workspace>", "one/team/net"),
            ("<variable:secret_name>", "PASSWORD"),
            ("<id:generation>", self.generation),
        ):
            route = route.replace(name, str(value))
        assert "<" not in route, f"the world has nothing for {route}"
        return route


def build() -> World:
    pool, other = make_pool("one"), make_pool("two")
    holder = User.objects.create_user("holder")
    pending = plan_that_waits()
    held = create_claim(ClaimRequest(pools=("one",), kind="slot", requested_by="holder", size=2))
    waiting = create_claim(ClaimRequest(pools=("one",), kind="slot", requested_by="holder"))
    assert (held.state, waiting.state) == ("bound", "waiting")
    stray = Stray("load balancer lb-1", False, "2026-11-01T00:00:00+00:00", STRAY)
    Pool.objects.filter(pk=pool.pk).update(strays=[asdict(stray)])
    set_secret(pool_id=pool.pk, name="PASSWORD", value="a word")
    row = {
        "claim_id": held.id,
        "generation": held.generation,
        "member_id": held.slots[0].member_id,
        "member": "a",
    }
    Run.objects.create(step="plan", **row)
    file = save_file("state", f"{held.id}-{held.generation}", b"{}")
    RescuedState.objects.create(
        claim_id=held.id,
        generation=held.generation,
        pool_id=pool.pk,
        member_id=held.slots[0].member_id,
        member="a",
        file=file,
    )
    lock_workspace(workspace_id=add_workspace(pool_id=pool.pk, name="team/net"), reason="a test")
    share_workspace(
        workspace_id=add_workspace(pool_id=pool.pk, name="shared"),
        pool_id=other.pk,
        reason="a test",
    )
    return World(
        pool=pool,
        other=other,
        claim=held.id,
        generation=held.generation,
        waiting=waiting.id,
        pending=pending,
        member=held.slots[0].member_id,
        slot=held.slots[0].id,
        token=create_token(user=holder, name="theirs")[0].pk,
        grant=create_grant(role="viewer", user=holder, pool=pool).pk,
    )


def plan_that_waits() -> int:
    """Parked: its slot is free for the other claims."""
    claim = create_claim(ClaimRequest(pools=("one",), kind="slot", requested_by="holder"))
    plan = Plan.objects.create(
        claim_id=claim.id, generation=claim.generation, digest=b"\x0a" * 32,
        summary={"add": 1, "change": 0, "destroy": 0}, size=4,
        file=save_file("plan", f"{claim.id}-world", b"plan"),
        json_file=save_file("json", f"{claim.id}-world", json.dumps(ONE_CHANGE).encode()),
    )  # fmt: skip
    assert plan.pk
    with connection.cursor() as cursor:
        cursor.execute("UPDATE claims_claim SET step = 'plan' WHERE id = %s", [claim.id])
    release_slots(claim.id, claim.generation, Ending("parked", "", "park", "a test", wait=86400.0))
    return claim.id


@pytest.fixture(scope="module")
def standing(django_db_setup: None, django_db_blocker: Any) -> Iterator[World]:
    with django_db_blocker.unblock(), transaction.atomic():
        yield build()
        transaction.set_rollback(True)


@pytest.fixture
def world(standing: World, db: None) -> Iterator[World]:
    """`db` tells pytest-django that there is to be a database, also where this file is the only
    one that runs.
    """
    with transaction.atomic():
        yield standing
        transaction.set_rollback(True)
