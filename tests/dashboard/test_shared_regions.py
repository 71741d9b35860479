"""Viewers with the same key of a region may see exactly the same content."""

from itertools import combinations

import pytest
from django.contrib.auth.models import User
from django.utils import timezone

import project.urls  # noqa: F401  (every view, which registers its regions)
from pools.access.permissions import CLAIMANT, OPERATOR, VIEWER, Identity, read_scope
from pools.models import Pool
from project.kernel.actor import acting_as
from project.kernel.events.log import record
from project.kernel.live.regions import _openers, open_region
from tests.claims.tasks.plans.helpers import make_task_pool, planned
from tests.dashboard.helpers import chief, claim, identity_of, make_pool, member, person

pytestmark = pytest.mark.django_db


def limited(
    user: User, *, roles: list[str] | None = None, pools: list[Pool] | None = None
) -> Identity:
    """What a limited token of this user may do."""
    own = identity_of(user)
    names = {pool.name: pool.pk for pool in pools or []}
    scope = read_scope(roles, None if pools is None else list(names.values()), names)
    return Identity(own.user_id, own.username, own.is_superuser, 1, "laptop", own.grants, scope)


def everybody(env: Pool, tf: Pool) -> dict[str, Identity]:
    users = {
        "chief": chief(),
        "second chief": chief("zoe"),
        "viewer": person("vera", VIEWER),
        "second viewer": person("viktor", VIEWER),
        "operator": person("olga", OPERATOR),
        "viewer of env": person("enya", VIEWER, pool=env),
        "second viewer of env": person("emil", VIEWER, pool=env),
        "claimant of env": person("carl", CLAIMANT, pool=env),
        "operator of tf": person("tom", OPERATOR, pool=tf),
    }
    for user in users.values():
        with acting_as(user.username):
            record("sign_in", data={"user": user.username})
            record(
                "grant", after="viewer", reason=f"for {user.username}", data={"user": user.username}
            )
    found = {name: identity_of(user) for name, user in users.items()}
    found["token of the chief for env"] = limited(users["chief"], pools=[env])
    found["reading token of the chief"] = limited(users["chief"], roles=[VIEWER])
    found["reading token of the operator of tf"] = limited(users["operator of tf"], roles=[VIEWER])
    return found


def test_viewers_who_share_a_region_key_get_equal_content(monkeypatch: pytest.MonkeyPatch) -> None:
    env, tf = make_pool(), make_task_pool()
    held, waiting = claim("env", "carl"), planned(workspace="net")
    seen = everybody(env, tf)
    now = timezone.now()
    # "3 s ago" stays that, however long the test takes.
    monkeypatch.setattr(timezone, "now", lambda: now)
    arguments = {
        "claim": [str(held.id)],
        "member": [str(member("env-1").pk), str(member("tf-01").pk)],
        "events": [""],
        "workspace": [f":{waiting.workspace_id}"],
        "approval": [str(waiting.id)],
        "pool.scaling.chart": ["env,6"],
        "claims": ["", "q=state%3Abound"],
        "claims.chips": [""],
        "scaling.pools": ["all,"],
    }
    compared = 0
    for name in sorted(_openers):
        if name.startswith("task."):
            told = [str(waiting.id)]
        else:
            told = arguments.get(
                name, ["env", "tf"] if name.startswith(("pool.", "cells")) else [""]
            )
        for argument in told:
            opened = {
                who: open_region(identity, f"{name}:{argument}" if argument else name)
                for who, identity in seen.items()
            }
            shared = [
                (a, b)
                for a, b in combinations(opened, 2)
                if opened[a] and opened[b] and opened[a].key == opened[b].key
            ]  # type: ignore[union-attr]
            for a, b in shared:
                one, other = opened[a], opened[b]
                assert one is not None and other is not None
                if one.render is None or other.render is None or name == "first":
                    continue
                assert one.render() == other.render(), f"{name}:{argument} is shared by {a} and {b}"
                compared += 1
    assert compared > 20, "hardly anything is shared: the test compares nothing"
