"""Every admin page opens, with a number of queries that does not grow with the rows."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.contrib import admin
from django.contrib.auth.models import Group, User
from django.db import connection, models
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.urls import reverse

from claims.allocation.bulk import create_claims
from claims.allocation.create import create_claim
from claims.allocation.requests.claim_request import ClaimRequest
from claims.models import (
    Approval,
    BackendConflict,
    BackendTarget,
    Claim,
    ClaimPart,
    ClaimSet,
    Lease,
    Lift,
    Plan,
    RescuedState,
    Shape,
    Source,
    Task,
    Workspace,
    WorkspaceShare,
)
from pools.access.tokens import create_token
from pools.lifecycle.services import create_pool
from pools.models import Decision, Heartbeat, Member, Pool, Sample, Secret
from pools.roles.services import create_grant
from project.kernel.models import Beat, Budget, Event
from project.kernel.outbox.operations import add_operation
from project.kernel.ui import admin_base
from project.kernel.ui.admin_base import BoundedPaginator
from slots.models import Slot, UnsavedState
from tests.dashboard.plain_browser import html_of

pytestmark = pytest.mark.django_db

MOST_QUERIES = 16
MODELS = sorted(admin.site._registry, key=lambda model: model._meta.label_lower)
AT = datetime(2026, 3, 12, 14, 0, tzinfo=UTC)


def fill(n: int) -> None:
    """A row of every kind, and n of those that there are many of."""
    pool = create_pool(
        {
            "kind": "Pool",
            "name": f"envs-{n}",
            "slots": n,
            "members": {"list": [{"name": f"m{i}"} for i in range(3)]},
        }
    )
    member = Member.objects.filter(pool=pool).first()
    create_claims(
        [
            ClaimRequest(pools=(pool.name,), owner=f"branch:{i}", requested_by="ana")
            for i in range(4 * n)
        ]
    )
    create_claim(ClaimRequest(pools=("later",), kind="slot", owner="user:ben", requested_by="ben"))
    claim = Claim.objects.filter(state="bound", pool=pool).order_by("pk").first()
    assert claim is not None and member is not None
    user = User.objects.create_user(f"ci-{n}")
    create_token(user=user, name="ci")
    create_grant(role="viewer", user=user, pool=pool)
    group, _ = Group.objects.get_or_create(name="people")
    create_grant(role="operator", group=group, pool=pool)
    workspace = Workspace.objects.create(
        pool=pool, name=f"prod-{n}", locked_at=AT, locked_by="ana", lock_reason="lost apply"
    )
    WorkspaceShare.objects.create(workspace=workspace, pool=pool)
    ClaimSet.objects.create(name=f"web-{n}", shape=claim.shape, replicas=2)
    plan = Plan.objects.create(
        claim=claim, generation=claim.generation, digest=b"\x00\x01", summary={"add": 1}
    )
    Approval.objects.create(plan=plan, by_user="ben", is_yes=True)
    Lease.objects.create(claim=claim, generation=claim.generation)
    ClaimPart.objects.create(
        claim=claim, index=0, kind="tcp", pools=[pool.name], first=0, count=1, options={"port": 80}
    )
    BackendTarget.objects.create(claim=claim, pool=pool, target=f"tcp 10.0.0.{n}:80")
    BackendConflict.objects.create(claim=claim, pool=pool, target=f"udp 10.0.0.{n}:80")
    Lift.objects.create(
        pool=pool, starts_at=AT, ends_at=AT + timedelta(hours=8), by="ana", reason="a launch"
    )
    source = Source.objects.create(
        digest=bytes([n]) * 32, file=f"sources/{n}", size=1, files=1, made_by="ana"
    )
    Task.objects.create(
        claim=claim, executor="command", body={"commands": {"plan": "<b>plan</b>"}}, source=source
    )
    state = {"claim_id": claim.pk, "generation": claim.generation, "member_id": member.pk}
    RescuedState.objects.create(
        **state, pool_id=pool.pk, workspace=workspace, member=member.name, digest=b"\x01"
    )
    UnsavedState.objects.create(**state)
    Heartbeat.objects.create(member=member, incarnation=1, load={"cpu": 0.4})
    Decision.objects.create(pool=pool, inputs={}, delta=1, reason="+1: 83 % used")
    Sample.objects.create(pool=pool, at=AT, members=3, slots=9, held=4, reserved=0, waiting=2)
    Secret.objects.create(pool=pool, name="key", ciphertext=b"\xff", key_id="1")
    Budget.objects.create(key=f"aws:{n}", tokens=1.0)
    Beat.objects.create(name="allocate", instance=f"host:{n}")
    add_operation(
        lane=f"member:{member.pk}",
        kind="sync",
        member_id=member.pk,
        claim_id=claim.pk,
        body={"a": 1},
    )


def pages(model: type[models.Model]) -> tuple[str, str]:
    name = f"admin:{model._meta.app_label}_{model._meta.model_name}"
    row: Any = model._default_manager.order_by("pk").first()
    assert row is not None, model
    return reverse(f"{name}_changelist"), reverse(f"{name}_change", args=[row.pk])


def count_queries(client: Client, url: str) -> int:
    with CaptureQueriesContext(
        connection,
    ) as seen:
        answer = client.get(url)
    assert answer.status_code == 200, url
    return len(seen)


@pytest.mark.parametrize("model", MODELS, ids=lambda model: model._meta.label_lower)
def test_pages_open_with_few_queries(model: type[models.Model], boss: Client) -> None:
    fill(2)
    for url in pages(model):
        boss.get(url)  # what a process reads once: content types
    before = [count_queries(boss, url) for url in pages(model)]
    assert max(before) <= MOST_QUERIES
    fill(9)
    after = [count_queries(boss, url) for url in pages(model)]
    assert after == before


def test_every_model_is_registered_except_the_listed_ones() -> None:
    """Left out: runs and the pieces of their logs, with keys of several columns, which the page of
    their claim shows; evacuations, departures, quarantines and calls without an answer, which the
    pages of ports show.
    """
    ours = {
        m
        for m in Pool._meta.apps.get_models()
        if m._meta.app_label in ("kernel", "pools", "slots", "claims")
    }
    left_out = ours - set(admin.site._registry)
    assert {model.__name__ for model in left_out} <= {
        "Departure",
        "Evacuation",
        "Installation",
        "LogChunk",
        "PendingCall",
        "Quarantine",
        "Run",
        "SignInAttempt",
    }


@pytest.mark.parametrize("model", MODELS, ids=lambda model: model._meta.label_lower)
def test_every_list_filter_and_search_answers_200(model: type[models.Model], boss: Client) -> None:
    fill(2)
    url = pages(model)[0]
    page = boss.get(url)
    for spec in page.context_data["cl"].filter_specs:
        for choice in list(spec.choices(page.context_data["cl"]))[1:]:
            assert boss.get(url + choice["query_string"]).status_code == 200
    model_admin = admin.site._registry[model]
    for name in getattr(model_admin, "lookups", {}):
        for value in ("1", "ana", "true", "-3", "9" * 30, "%00"):
            assert boss.get(f"{url}?q={name}:{value}").status_code == 200, (name, value)
    assert boss.get(f"{url}?q=7").status_code == 200


def test_the_page_of_a_claim_links_to_its_slots_and_events(boss: Client) -> None:
    fill(2)
    claim = Claim.objects.filter(state="bound").order_by("pk").first()
    assert claim is not None
    page = boss.get(reverse("admin:claims_claim_change", args=[claim.pk])).content.decode()
    slot = Slot.objects.get(claim_id=claim.pk)
    assert reverse("admin:slots_slot_change", args=[slot.pk]) in page
    assert f"{reverse('admin:kernel_event_changelist')}?claim_id={claim.pk}" in page


def test_a_long_list_is_cut_and_says_so(boss: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(admin_base, "MAX_ROWS", 60)
    Event.objects.bulk_create([Event(verb="note", actor="ana") for _ in range(65)])
    page = boss.get(reverse("admin:kernel_event_changelist"))
    assert page.context_data["cl"].result_count == 60
    assert "Filter or search to find others" in html_of(page)
    assert BoundedPaginator(Event.objects.order_by("pk"), 50).count == 60


def test_the_claim_list_filters_by_shape_and_state(boss: Client) -> None:
    fill(2)
    shape = Shape.objects.filter(claims__state="waiting").first()
    assert shape is not None
    page = boss.get(
        f"{reverse('admin:claims_claim_changelist')}"
        f"?shape__id__exact={shape.pk}&state__exact=waiting"
    )
    assert {claim.shape_id for claim in page.context_data["cl"].result_list} == {shape.pk}
