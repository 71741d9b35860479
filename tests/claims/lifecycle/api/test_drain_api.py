"""The API of drains, token rotation and member heartbeats."""

from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db import connection
from django.test import Client
from django.utils import timezone

from pools.lifecycle.services import create_pool
from pools.models import Heartbeat, Member, Pool
from project.kernel.models import Event
from slots.agent_versions import compare
from slots.members.tokens import identify_member, issue_token
from tests.api.conftest import Caller, caller  # noqa: F401
from tests.claims.lifecycle.drain_helpers import find
from tests.claims.tasks.approvals.helpers import agents, begin, planned, task

pytestmark = pytest.mark.django_db


def operator(caller: Any, pool: Pool) -> Caller:  # noqa: F811
    found: Caller = caller("operator", pool)
    return found


@pytest.fixture
def pool() -> Pool:
    return agents(members=2, slots=("any", "plan"), drain={"limit": "45m"})


@pytest.fixture
def client(caller: Any, pool: Pool) -> Caller:  # noqa: F811
    return operator(caller, pool)


def test_a_drain_answers_what_keeps_the_member(client: Caller) -> None:
    claim = begin(task())
    member = find(claim.slots[0].member)
    answer = client.post(f"members/{member.pk}/drain/", {"reason": "kernel patch"})
    assert answer.status == 200, answer.body
    body = answer.body
    assert (body["is_draining"], body["stays"], body["slots"], body["empty"], body["note"]) == (
        True,
        False,
        2,
        1,
        "kernel patch",
    )
    assert [(k["claim_id"], k["state"], k["then"]["state"]) for k in body["keepers"]] == [
        (claim.id, "bound", "waiting")
    ]
    assert body["keepers"][0]["then"]["text"] == "Queued again, plans again"
    assert body["by"].startswith("operator")
    assert body["member"]["drain_until"] == body["until"]
    assert client.get(f"members/{member.pk}/drain/").body == body


def test_the_drain_of_a_member_that_does_not_drain_shows_what_force_would_end(
    client: Caller,
) -> None:
    claim = planned()
    member = find(claim.slots[0].member)
    body = client.get(f"members/{member.pk}/drain/").body
    assert (body["is_draining"], body["until"], [k["then"]["state"] for k in body["keepers"]]) == (
        False,
        None,
        ["parked"],
    )


@pytest.mark.django_db(transaction=True)
def test_a_forced_drain_has_emptied_the_member_when_it_answers(client: Caller) -> None:
    claim = planned()
    member = find(claim.slots[0].member)
    body = client.post(f"members/{member.pk}/drain/", {"reason": "it burns", "force": True}).body
    assert (body["keepers"], body["empty"]) == ([], 2)


def test_an_undrain_takes_the_drain_back(client: Caller) -> None:
    claim = begin(task())
    member = find(claim.slots[0].member)
    client.post(f"members/{member.pk}/drain/", {"reason": "kernel patch", "stays": True})
    body = client.post(f"members/{member.pk}/undrain/", {"reason": "not today"}).body
    assert (body["is_draining"], body["until"], body["by"]) == (False, None, "")
    assert Event.objects.get(verb="undrain").reason == "not today"


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({}, "reason"),
        ({"reason": "x", "until": "2020-01-01T00:00:00Z"}, "until"),
        ({"reason": "x", "until": "2030-01-01T00:00:00"}, "until"),
        ({"reason": "x", "within": "soon"}, "within"),
        ({"reason": "x", "within": "30m", "force": True}, "within"),
        ({"reason": "x", "within": "365d"}, "until"),
        ({"reason": "x", "deadline": "30m"}, "deadline"),
        ({"reason": 7}, "reason"),
    ],
    ids=[
        "no reason",
        "past",
        "no offset",
        "no length",
        "two deadlines",
        "too far",
        "unknown",
        "a number",
    ],
)
def test_an_invalid_drain_body_is_refused_at_its_field(
    client: Caller, body: dict[str, Any], field: str
) -> None:
    begin(task())
    answer = client.post(f"members/{find().pk}/drain/", body)
    assert answer.status in (400, 422), answer.body
    assert [error["field"] for error in answer.body["errors"]] == [field]
    assert answer.body["errors"][0]["message"]
    assert find().drain_until is None


def test_draining_several_members_reports_each_member(client: Caller) -> None:
    begin(task())
    # The member has no claims, so it leaves at once.
    client.post(f"members/{find('tf-1').pk}/drain/", {"reason": "earlier"})
    until = (timezone.now() + timedelta(hours=2)).isoformat()
    answer = client.post(
        "pools/tf/drain/", {"reason": "the zone goes", "members": ["tf-0", "tf-1"], "until": until}
    )
    assert answer.status == 200, answer.body
    assert [(one["name"], one["state"], bool(one["error"])) for one in answer.body["results"]] == [
        ("tf-0", "ready", False),
        ("tf-1", None, True),
    ]
    assert find("tf-0").is_leaving


def test_draining_several_members_refuses_an_unknown_name(client: Caller) -> None:
    answer = client.post("pools/tf/drain/", {"reason": "x", "members": ["tf-0", "nobody"]})
    assert (answer.status, answer.body["errors"][0]["field"]) == (400, "members")
    assert find("tf-0").state == "ready"


# -- rotation --------------------------------------------------------------------------------------


def test_a_token_is_rotated_where_berth_hands_tokens_over(caller: Any) -> None:  # noqa: F811
    pool = create_pool({"name": "ours", "provider": "local", "members": {"list": ["l"]}})
    Member.objects.update(state="ready")
    member = pool.members.get()
    admin: Caller = caller("admin", pool)
    assert (
        admin.post(
            f"members/{member.pk}/rotate-token/", {"reason": "a new year", "ends_previous": True}
        ).status
        == 200
    )
    assert Member.objects.get().is_previous_ending
    answer = admin.post(f"members/{member.pk}/token/", {})
    assert (answer.status, answer.body["code"]) == (409, "ours")
    assert "Rotate the token" in answer.body["way_out"]


def test_a_token_that_berth_does_not_hand_over_cannot_be_rotated(caller: Any, pool: Pool) -> None:  # noqa: F811
    admin: Caller = caller("admin", pool)
    answer = admin.post(f"members/{find().pk}/rotate-token/", {"reason": "a new year"})
    assert (answer.status, answer.body["code"]) == (409, "not_ours")


# -- a member's own heartbeat ----------------------------------------------------------------------


@pytest.fixture
def lab() -> Pool:
    return create_pool(
        {
            "name": "lab",
            "slots": 1,
            "members": {"list": ["a", "b"]},
            "liveness": {"heartbeat": "1m"},
        }
    )


def beat(member: str, token: str, **body: Any) -> Any:
    return Caller(token).post(f"members/{find(member).pk}/heartbeat/", body)


def test_a_member_sends_its_heartbeat_with_its_own_token(lab: Pool) -> None:
    token = issue_token(member_id=find("a").pk)
    answer = beat("a", token, load={"version": "2.1"})
    assert (answer.status, answer.body["state"], answer.body["next_within_s"]) == (
        200,
        "ready",
        60.0,
    )
    assert Heartbeat.objects.get().member_id == find("a").pk


def test_a_member_token_sends_no_heartbeat_of_another_member(lab: Pool) -> None:
    answer = beat("b", issue_token(member_id=find("a").pk))
    assert answer.status == 403
    assert f"members/{find('a').pk}/heartbeat/" in answer.body["way_out"]
    assert not Heartbeat.objects.exists()


def test_a_wrong_or_outdated_member_token_is_refused(lab: Pool) -> None:
    token = issue_token(member_id=find("a").pk)
    answer = beat("a", token[:-4] + "aaaa")
    assert (answer.status, answer.body["code"]) == (401, "bad_token")
    Member.objects.update(incarnation=2)
    assert beat("a", token).status == 401


def test_a_member_token_opens_no_other_endpoint(lab: Pool) -> None:
    client = Caller(issue_token(member_id=find("a").pk))
    for path in (f"members/{find('a').pk}/", "pools/", "claims/", "me/"):
        assert client.get(path).status == 401
    assert client.post(f"members/{find('a').pk}/cordon/", {"reason": "x"}).status == 401


def test_an_operator_may_send_a_heartbeat_and_a_claimant_may_not(caller: Any, lab: Pool) -> None:  # noqa: F811
    path = f"members/{find('a').pk}/heartbeat/"
    assert caller("operator", lab).post(path, {}).status == 200
    assert caller("claimant", lab).post(path, {}).status == 403


def test_a_member_token_is_issued_with_its_heartbeat_command(caller: Any, lab: Pool) -> None:  # noqa: F811
    body = caller("admin", lab).post(f"members/{find('a').pk}/token/", {}).body
    assert identify_member(body["token"]).member == "a"
    assert f"/api/v1/members/{find('a').pk}/heartbeat/" in body["start"][1]
    assert body["token"] not in body["start"][1]


# -- versions --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("theirs", "ours", "mark"),
    [
        ("0.1.0+aa", "0.1.0+aa", ""),
        ("", "0.1.0+aa", ""),
        ("0.1.0+ab", "0.1.0+aa", "other"),
        ("0.0.9+aa", "0.1.0+aa", "older"),
        ("0.9.0", "0.10.0", "older"),
        ("1.0.0+aa", "0.10.0+aa", "newer"),
        ("mine", "0.1.0+aa", "other"),
    ],
)
def test_agent_versions_are_compared_with_the_server_version(
    theirs: str, ours: str, mark: str
) -> None:
    assert compare(theirs, ours) == mark


def test_the_member_panel_marks_an_agent_of_an_older_version(caller: Any, pool: Pool) -> None:  # noqa: F811
    with connection.cursor() as cursor:
        cursor.execute(
            """INSERT INTO pools_heartbeat (member_id, incarnation, at, load)
               VALUES (%s, 1, now(), '{"version": "0.0.1+abc"}')
               ON CONFLICT (member_id) DO UPDATE SET load = EXCLUDED.load""",
            [find().pk],
        )
    caller("viewer", pool, name="vera")
    browser = Client()
    browser.force_login(User.objects.get(username="vera"))
    text = browser.get("/pools/tf/?member=tf-0").content.decode()
    assert "0.0.1+abc" in text
    assert "older than the server’s" in text
    assert "1 agent of another version" in text
