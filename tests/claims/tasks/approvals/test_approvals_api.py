"""The API of decisions: single, bulk, and the inbox by page."""

from typing import Any

import pytest
from django.contrib.auth.models import User

from claims.lifecycle.cancel import cancel_claim
from claims.tasks.files.sealed_files import save_file
from pools.access.tokens import create_token
from pools.models import Grant
from pools.roles.services import create_grant
from tests.api.conftest import Caller
from tests.claims.tasks.approvals.helpers import (
    agents,
    applying,
    events,
    hexed,
    plan_of,
    planned,
    run_of,
    sql,
    task,
    workspace,
    yes,
)

pytestmark = pytest.mark.usefixtures("tables")


def caller(name: str = "ben", *roles: str) -> Caller:
    user, _ = User.objects.get_or_create(username=name)
    Grant.objects.filter(user=user).delete()
    for role in roles or ("approver",):
        create_grant(role=role, user=user)
    return Caller(create_token(user=user, name="test")[1])


def test_an_approval_starts_the_apply_and_a_later_rejection_is_refused() -> None:
    agents()
    claim, ben, eve = planned(), caller("ben"), caller("eve")
    told = ben.get(f"claims/{claim.id}/").body["approval"]
    assert (told["digest"], told["needed"], told["given"], told["summary"]["add"]) == (
        hexed(),
        1,
        0,
        1,
    )
    answer = ben.post(f"claims/{claim.id}/approve/", {"digest": told["digest"], "comment": "fine"})
    assert (answer.status, answer.body["state"], answer.body["step"], answer.body["approval"]) == (
        200,
        "bound",
        "apply",
        None,
    )
    late = eve.post(f"claims/{claim.id}/reject/", {"digest": told["digest"], "comment": "no"})
    assert (late.status, late.body["code"], late.body["by"]) == (409, "approved", "ben")
    assert "was approved by ben at" in late.body["detail"]
    assert events("approve")[0].actor == "ben/test"
    plan = eve.get(f"claims/{claim.id}/plan/").body
    assert [(a["by"], a["is_yes"], a["via"], a["comment"]) for a in plan["approvals"]] == [
        ("ben", True, "api", "fine")
    ]


def test_a_plan_with_contradicting_counts_is_approved_neither_alone_nor_in_bulk() -> None:
    agents()
    claim, ben = planned(), caller()
    sql(
        "UPDATE claims_plan SET mismatch = 'The agent counts nothing.' WHERE claim_id = %s",
        claim.id,
    )
    assert ben.get(f"claims/{claim.id}/plan/").body["mismatch"] == "The agent counts nothing."
    alone = ben.post(f"claims/{claim.id}/approve/", {"digest": hexed()})
    assert (alone.status, alone.body["code"]) == (409, "counts_differ")
    assert "The agent counts nothing." in alone.body["detail"] and alone.body["way_out"]
    decisions = [{"claim": claim.id, "digest": hexed(), "approve": True}]
    (among,) = ben.post("approvals/bulk/", {"decisions": decisions}).body["results"]
    assert (among["status"], among["body"]["code"]) == (409, "counts_differ")
    assert plan_of(claim).approvals.count() == 0
    assert (
        ben.post(f"claims/{claim.id}/reject/", {"digest": hexed(), "comment": "broken"}).status
        == 200
    )


def test_an_invalid_decision_is_refused_at_its_field() -> None:
    agents()
    claim, ben = planned(), caller()
    path = f"claims/{claim.id}"
    for action, body, status, field in (
        ("approve", {}, 400, "digest"),
        ("approve", {"digest": hexed(), "more": 1}, 400, "more"),
        ("approve", {"digest": "x" * 65}, 400, "digest"),
        ("reject", {"digest": hexed()}, 400, "comment"),
        ("reject", {"digest": hexed(), "comment": " "}, 400, "comment"),
        ("extend", {"for": "soon", "reason": "x"}, 400, "for"),
        ("extend", {"for": "31d", "reason": "x"}, 400, "for"),
        ("extend", {"for": "1h"}, 400, "reason"),
    ):
        answer = ben.post(f"{path}/{action}/", body)
        assert (answer.status, [e["field"] for e in answer.body["errors"]]) == (status, [field]), (
            action,
            body,
        )
    assert ben.post(f"{path}/approve/", {"digest": hexed("other")}).body["code"] == "plan_changed"
    assert ben.post("claims/999/approve/", {"digest": hexed()}).status == 404


def test_a_reserved_plan_is_extended_moved_and_planned_again() -> None:
    agents()
    claim, ben = planned(), caller("ben", "approver", "operator")
    path = f"claims/{claim.id}"
    later = ben.post(f"{path}/extend/", {"for": "2h", "reason": "away"})
    assert later.body["expires_at"] > (claim.expires_at.isoformat() if claim.expires_at else "")
    assert ben.post(f"{path}/move/", {"reason": "slow"}).body["slots"][0]["member"] == "tf-1"
    assert ben.post(f"{path}/plan-again/", {"reason": "old"}).body["step"] == "plan"
    assert ben.post(f"{path}/plan-again/", {"reason": "old"}).status == 409


def test_viewers_read_a_plan_and_approvers_download_its_file() -> None:
    agents()
    claim = planned()
    sql(
        "UPDATE claims_plan SET file = %s, json_file = %s",
        save_file("plan", f"{claim.id}-1", b"secret"),
        save_file("json", f"{claim.id}-1", b'{"resource_changes": []}'),
    )
    viewer, approver = caller("vic", "viewer"), caller()
    assert viewer.get(f"claims/{claim.id}/plan/").body["has_file"] is True
    assert viewer.get(f"claims/{claim.id}/plan/json/").body == {"resource_changes": []}
    assert viewer.get(f"claims/{claim.id}/plan/file/").status == 403
    assert approver.get(f"claims/{claim.id}/plan/file/").status == 200
    assert viewer.get(f"claims/{task(workspace='b').id}/plan/").status == 404
    plan_of(claim)


def test_the_inbox_is_paged_by_the_nearest_deadline_and_filtered() -> None:
    agents("tf", members=4)
    agents("dns", members=1)
    claims = [planned(workspace=f"w{i}") for i in range(4)]
    other = planned("dns", "zone")
    sql("UPDATE claims_claim SET expires_at = expires_at - make_interval(mins => id::int)")
    ben = caller("ben", "viewer")
    first = ben.get("approvals/?limit=2").body
    assert [p["claim"] for p in first["results"]] == [other.id, claims[3].id]
    second = ben.get(
        "approvals/?limit=2&" + first["next"].partition("?")[2].replace("limit=2&", "")
    ).body
    assert [p["claim"] for p in second["results"]] == [claims[2].id, claims[1].id]
    assert ben.get("approvals/?pool=dns").body["results"][0]["workspace"] == "zone"
    assert [p["claim"] for p in ben.get("approvals/?workspace=w1").body["results"]] == [
        claims[1].id
    ]
    assert ben.get("approvals/?cursor=x").status == 400
    seen = first["results"][1]
    assert (seen["member"], seen["is_parked"], seen["destroys"], seen["plan"]["digest"]) == (
        "tf-3",
        False,
        False,
        hexed(),
    )
    assert seen["held_for_s"] >= 0
    assert caller("eve", "claimant").get("approvals/?pool=nowhere").status == 404


def test_bulk_decisions_are_answered_each_by_the_rights_of_the_caller() -> None:
    tf, _ = agents("tf", members=3), agents("dns", members=1)
    fine, destroys, theirs = (
        planned(workspace="a"),
        planned(workspace="b", summary={"destroy": 2}),
        planned("dns", "zone"),
    )
    user = User.objects.get(username="ben")
    Grant.objects.filter(user=user).delete()
    create_grant(role="approver", user=user, pool=tf)
    ben = Caller(create_token(user=user, name="test")[1])
    answer: Any = ben.post(
        "approvals/bulk/",
        {
            "decisions": [
                {"claim": fine.id, "digest": hexed(), "approve": True},
                {"claim": destroys.id, "digest": hexed(), "approve": True},
                {"claim": theirs.id, "digest": hexed(), "approve": True},
                {"claim": 999, "digest": hexed(), "approve": False, "comment": "x"},
                {"claim": "x"},
                {"claim": destroys.id, "digest": hexed(), "approve": False, "comment": "too much"},
            ]
        },
    )
    told = [
        (item["status"], item["body"].get("code") or item["body"]["state"])
        for item in answer.body["results"]
    ]
    assert told == [
        (200, "bound"),
        (422, "destroys"),
        (404, "not_found"),
        (404, "not_found"),
        (400, "invalid"),
        (200, "ended"),
    ]
    assert ben.post("approvals/bulk/", {"decisions": []}).status == 400


def test_a_lost_apply_is_settled_by_an_approver_and_not_by_a_viewer() -> None:
    agents(members=3)
    claim = applying()
    cancel_claim(claim_id=claim.id)
    viewer, approver = caller("vic", "viewer"), caller()
    told = viewer.get("workspaces/net/").body
    assert (told["is_locked"], told["lost_claim"]) == (True, claim.id)
    body = {"what": "not_applied", "reason": "nothing there"}
    assert viewer.post("workspaces/net/settle/", body).body["role"] == "operator"
    assert approver.post("workspaces/net/settle/", {"what": "perhaps", "reason": "x"}).status == 400
    assert approver.post("workspaces/net/settle/", body).body["lost_claim"] is None
    assert workspace().locked_at is None
    runs = viewer.get("workspaces/net/runs/").body["results"]
    assert [(r["step"], r["outcome"], (r["settled"] or {}).get("what")) for r in runs] == [
        ("apply", "cancelled", "not_applied"),
        ("plan", "planned", None),
    ]
    assert run_of(claim).facts["settled"]["by"] == "ben/test"
    yes(planned())
    assert viewer.get("workspaces/nowhere/runs/").status == 404
