"""Plan pages over HTTP: roles, disabled actions with reasons, and the effect of each post."""

import json
import re
from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone

from claims.allocation.claim_view import ClaimView
from claims.allocation.selectors import view_claim
from claims.lifecycle.cancel import force_release
from claims.lifecycle.claim_steps import AgentRun, ApprovalSummary, steps_of_task
from claims.models import Claim, Plan, Run
from claims.tasks.approvals.services import approve_plan
from claims.tasks.files.sealed_files import delete_file
from claims.tasks.pages import plan_page
from claims.tasks.runs.interrupt import Interrupt, record_interrupt
from claims.tasks.runs.services import confirm_stopped
from claims.workspaces.selectors import get_workspace
from pools.models import Member
from project.kernel.actor import acting_as
from project.kernel.errors import StaleGeneration
from project.kernel.models import Event
from slots.models import Slot
from tests.claims.tasks.approvals.helpers import decider, ws
from tests.claims.tasks.plans.helpers import (
    NETWORK,
    begin,
    digest_of,
    finish,
    make_task_pool,
    network_plan,
    planned,
    resource,
    say,
    task,
)
from tests.dashboard.helpers import chief, person
from tests.dashboard.plain_browser import DIALOG, browser_of, get, off, post

pytestmark = pytest.mark.django_db

PANEL = {"HX-Request": "true", "HX-Target": "decide-said"}


def decide(client: Any, claim: Any, word: str = "approve", **fields: Any) -> Any:
    """As the panel does."""
    return client.post(
        f"/claims/{claim.id}/{word}/", {"digest": digest_of(claim), **fields}, headers=PANEL
    )


def test_the_plan_page_lists_deciders_and_approvals() -> None:
    make_task_pool(approval={"needed": 2, "own": False})
    waiting = planned(who="tanaka", plan=network_plan(), summary=NETWORK)
    for name in ("lind", "nair"):
        person(name, "approver")
    with acting_as("lind"):
        approve_plan(
            claim_id=waiting.id,
            digest=digest_of(waiting),
            by=decider("lind"),
            comment="window agreed",
        )
    text = get(browser_of(person("okafor", "approver")), f"/claims/{waiting.id}/")
    for said in (
        "lind approved",
        "“window agreed”",
        "1 more: you or nair",
        "1 of 2",
        "Yours would be the second approval",
        "aws_nat_gateway",
    ):
        assert said in text, said
    assert "I have read the replacement in this plan" in text
    assert off(text, "Approve and apply") is not None


@pytest.mark.parametrize(
    ("role", "why"),
    [
        ("viewer", "This needs the role approver."),
        ("operator", "This needs the role approver."),
        ("approver", None),
    ],
)
def test_disabled_decision_buttons_name_the_required_role(role: str, why: str | None) -> None:
    make_task_pool()
    waiting = planned()
    user = person("vera", role)
    text = get(browser_of(user), f"/claims/{waiting.id}/")
    assert off(text, "Approve and apply") == why
    answer = decide(browser_of(user), waiting)
    assert answer.status_code == (204 if why is None else 200)
    assert view_claim(waiting.id).step == ("apply" if why is None else "plan")


def test_ones_own_plan_cannot_be_approved_where_the_pool_forbids_it() -> None:
    make_task_pool(approval={"needed": 1, "own": False})
    user = person("tanaka", "approver", "claimant")
    waiting = planned(who="tanaka")
    text = get(browser_of(user), f"/claims/{waiting.id}/")
    assert (
        off(text, "Approve and apply") == "You requested the claim: another approver has to decide."
    )
    assert decide(browser_of(user), waiting).status_code in (409, 422)
    assert view_claim(waiting.id).state == "reserved"


def test_a_destructive_plan_requires_its_tick_on_the_server() -> None:
    make_task_pool()
    waiting = planned(plan=network_plan(), summary=NETWORK)
    client = browser_of(person("lind", "approver"))
    refused = decide(client, waiting)
    assert refused.status_code == 422
    assert "you read the replacement" in refused.content.decode()
    assert decide(client, waiting, read="1").status_code == 204
    assert view_claim(waiting.id).step == "apply"


def test_the_dialog_of_a_destructive_plan_requires_the_typed_name() -> None:
    make_task_pool()
    waiting = planned(plan=network_plan(), summary=NETWORK)
    client = browser_of(person("lind", "approver"))
    page = get(client, f"/claims/{waiting.id}/approve/", **DIALOG)
    assert "1 to replace, 2 to change and 2 to add" in page
    assert (
        post(
            client, f"/claims/{waiting.id}/approve/", digest=digest_of(waiting), typed="net"
        ).status_code
        == 422
    )
    assert (
        post(
            client, f"/claims/{waiting.id}/approve/", digest=digest_of(waiting), typed="network"
        ).status_code
        == 204
    )
    event = Event.objects.get(verb="approve", claim_id=waiting.id)
    assert event.actor == "lind"


def test_a_plan_with_contradicting_counts_says_so_and_cannot_be_approved() -> None:
    make_task_pool()
    waiting = planned(
        plan={"resource_changes": []}, summary={"add": 0, "change": 0, "destroy": 3, "replace": 0}
    )
    told = "The agent counts 3 to destroy, but the plan that it sent lists no changes."
    Plan.objects.filter(claim_id=waiting.id).update(mismatch=told)
    client = browser_of(person("lind", "approver"))
    text = get(client, f"/claims/{waiting.id}/")
    assert told in text and "It changes nothing" not in text
    why = "The counts of the plan contradict its list of changes: plan again."
    assert off(text, "Approve and apply") == why
    answer = decide(client, waiting, read="1")
    assert answer.status_code == 409 and told in answer.content.decode()
    assert view_claim(waiting.id).state == "reserved"


def test_a_bulk_approval_leaves_out_a_plan_with_contradicting_counts() -> None:
    make_task_pool()
    waiting, other = planned("a"), planned("b")
    Plan.objects.filter(claim_id=waiting.id).update(mismatch="The agent counts nothing.")
    client = browser_of(person("lind", "approver"))
    page = get(client, f"/approvals/approve/?claim={waiting.id}&claim={other.id}", **DIALOG)
    assert "Approve 1 plan" in page
    assert "left out: The counts of the plan contradict its list of changes: plan again." in page


def test_the_plan_page_embeds_limited_attributes_and_loads_the_rest(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    make_task_pool()
    body = {f"attribute_{n}": "x" * 250 for n in range(50)}
    waiting = planned(
        plan={
            "resource_changes": [resource(f"aws_a.r{n}", "create", after=body) for n in range(15)]
        }
    )
    client = browser_of(person("lind", "approver"))
    before = get(client, f"/claims/{waiting.id}/")
    monkeypatch.setattr(plan_page, "MOST_EMBEDDED", 60_000)
    after = get(client, f"/claims/{waiting.id}/")
    assert before.count("attribute_7 ") == 15 and before.count("data-load=") == 0
    assert 1 <= after.count("attribute_7 ") <= 3
    (url, *_) = re.findall(r'data-load="([^"]+)"', after)
    assert "attribute_7 " in get(client, url)


def test_the_plan_page_needs_the_outline_and_not_the_json() -> None:
    make_task_pool()
    waiting = planned(plan=network_plan())
    delete_file(Plan.objects.get(claim_id=waiting.id).json_file)
    text = get(browser_of(person("lind", "approver")), f"/claims/{waiting.id}/")
    assert "aws_nat_gateway" in text and "forces replacement" in text


def test_the_raw_plan_is_sent_unchanged_whether_small_or_large(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    make_task_pool()
    waiting = planned(plan=network_plan())
    client = browser_of(person("lind", "approver"))
    url = f"/claims/{waiting.id}/plan/{Plan.objects.get(claim_id=waiting.id).pk}/raw/"
    small = client.get(url)
    monkeypatch.setattr(plan_page, "PRETTY", 0)
    large = client.get(url)
    assert large.streaming and json.loads(
        b"".join(large.streaming_content)
    ) == network_plan() == json.loads(small.content)


def test_a_get_decides_nothing_and_an_unseen_plan_is_refused() -> None:
    make_task_pool()
    waiting = planned()
    client = browser_of(person("lind", "approver"))
    get(client, f"/claims/{waiting.id}/approve/")
    get(client, f"/claims/{waiting.id}/reject/")
    assert view_claim(waiting.id).state == "reserved"
    answer = client.post(f"/claims/{waiting.id}/approve/", {"digest": "00" * 32}, headers=PANEL)
    assert answer.status_code in (409, 422)
    assert view_claim(waiting.id).state == "reserved"


def test_a_rejection_requires_a_comment_and_shows_it() -> None:
    make_task_pool()
    waiting = planned()
    client = browser_of(person("lind", "approver"))
    assert decide(client, waiting, "reject").status_code == 422
    assert decide(client, waiting, "reject", comment="not today").status_code == 204
    assert view_claim(waiting.id).outcome == "rejected"
    assert "“not today”" in get(client, f"/claims/{waiting.id}/")


def test_a_bulk_approval_leaves_out_destructive_and_foreign_plans() -> None:
    make_task_pool(members=4)
    other = make_task_pool("other")
    mine, risky = planned("a"), planned("b", plan=network_plan(), summary=NETWORK)
    hidden = planned("c", pool="other")
    client = browser_of(person("lind", "approver", pool=Claim.objects.get(pk=mine.id).pool))
    query = "&".join(f"claim={c.id}" for c in (mine, risky, hidden))
    page = get(client, f"/approvals/approve/?{query}", **DIALOG)
    assert "Approve 1 plan" in page
    assert "it destroys resources, so approve it in its own dialog" in page
    assert f"/claims/{hidden.id}/" not in page
    assert other.name not in page
    seen = re.search(r'name="seen" value="(\w+)"', page)
    assert seen is not None
    told = [f"{c.id}:{digest_of(c)}" for c in (mine, risky, hidden)]
    answer = client.post(
        "/approvals/approve/", {"plan": told[:1], "seen": seen[1], "reason": ""}, headers=DIALOG
    )
    assert answer.status_code == 204
    assert [view_claim(c.id).step for c in (mine, risky, hidden)] == ["apply", "plan", "plan"]
    forced = client.post(
        "/approvals/approve/", {"plan": told, "seen": "0" * 16, "reason": ""}, headers=DIALOG
    )
    assert forced.status_code == 409  # the plan is already decided
    assert [view_claim(c.id).step for c in (risky, hidden)] == ["plan", "plan"]


def test_plans_are_extended_and_rejected_in_bulk_with_one_reason() -> None:
    make_task_pool(members=4)
    both = [planned("a"), planned("b")]
    client = browser_of(person("lind", "approver"))
    query = "&".join(f"claim={c.id}" for c in both)

    def send(path: str, **fields: Any) -> Any:
        page = get(client, f"{path}?{query}", **DIALOG)
        seen = re.search(r'name="seen" value="(\w+)"', page)
        plans = re.findall(r'name="plan" value="([^"]+)"', page)
        return client.post(
            path, {"plan": plans, "seen": seen[1] if seen else "", **fields}, headers=DIALOG
        )

    before = view_claim(both[0].id).expires_at
    assert send("/approvals/extend/", reason="holiday", **{"for": "soon"}).status_code == 422
    assert send("/approvals/extend/", reason="holiday", **{"for": "3h"}).status_code == 204
    after = view_claim(both[0].id).expires_at
    assert before is not None
    assert after is not None
    assert after - before == timedelta(hours=3)
    assert send("/approvals/reject/", reason="").status_code == 422
    assert send("/approvals/reject/", reason="wrong branch").status_code == 204
    assert [view_claim(c.id).outcome for c in both] == ["rejected", "rejected"]


def test_the_inbox_counts_and_filters_plans_and_names_claims_behind_them() -> None:
    make_task_pool(members=2)
    make_task_pool("dev", members=1, approval={"needed": 1, "own": False})
    planned("a", plan=network_plan(), summary=NETWORK)
    planned("b", who="lind", pool="dev")
    task("c", pool="dev")
    user = person("lind", "approver")
    client = browser_of(user)
    text = get(client, "/approvals/")
    assert "<b>2</b> waiting, <b>1</b> you can decide" in text
    assert "1 claim waits in their pools" in text
    assert "You requested the claim: another approver has to decide." in text
    (in_menu,) = re.findall(r'data-go="approvals">(.*?)</a>', get(client, "/"))
    assert "<b>2</b>" in in_menu
    for query, there, gone in (
        ("?show=mine", ">a<", ">b<"),
        ("?show=destroys", ">a<", ">b<"),
        ("?pool=dev", ">b<", ">a<"),
    ):
        listed = get(client, f"/approvals/{query}").partition("data-rows")[2].partition("</ul>")[0]
        assert there in listed, query
        assert gone not in listed, query
    outsider = browser_of(person("vera", "viewer", pool=make_task_pool("none")))
    assert "No plan waits" in get(outsider, "/approvals/")
    assert "No plan waits for an approval" in get(outsider, "/")
    assert "The first expires in" in get(client, "/")


def test_disabled_actions_of_a_task_give_their_reason() -> None:
    make_task_pool()
    running = task("a")
    begin(running)
    client = browser_of(chief())
    text = get(client, f"/claims/{running.id}/")
    assert (
        off(text, "Move…")
        == "A task runs. The claim can be moved once its plan waits for an approval."
    )
    assert off(text, "Release…") == "A plan runs. Cancel the claim to stop it."
    assert off(text, "Cancel…") is None
    assert "The agent interrupts the running plan" in get(client, f"/claims/{running.id}/cancel/")
    waiting = planned("b")
    text = get(client, f"/claims/{waiting.id}/")
    assert off(text, "Release…") == "The slot is reserved for the apply. Reject the plan instead."
    assert [off(text, word) for word in ("Move…", "Extend…", "Plan again…", "Cancel…")] == [
        None
    ] * 4
    viewer = get(browser_of(person("vera", "viewer")), f"/claims/{waiting.id}/")
    assert off(viewer, "Plan again…") == "This needs the role operator."
    assert off(viewer, "Extend…") == "This needs the role approver."


def test_a_plan_is_extended_moved_and_planned_again_from_its_page() -> None:
    make_task_pool()
    waiting = planned()
    client = browser_of(person("omar", "operator"))
    assert (
        post(client, f"/claims/{waiting.id}/extend/", reason="x", **{"for": "2h"}).status_code
        == 204
    )
    first = Claim.objects.get(pk=waiting.id).generation
    assert post(client, f"/claims/{waiting.id}/move/", reason="disk").status_code == 204
    moved = view_claim(waiting.id)
    assert moved.state in ("reserved", "parked")
    assert Plan.objects.get(claim_id=waiting.id).is_stale is False
    assert post(client, f"/claims/{waiting.id}/plan-again/", reason="new commit").status_code == 204
    assert Plan.objects.get(claim_id=waiting.id).is_stale is True
    assert Claim.objects.get(pk=waiting.id).generation != first


def test_cancelling_an_apply_requires_its_name_and_locks_the_workspace() -> None:
    make_task_pool()
    waiting = planned()
    approve_plan(claim_id=waiting.id, digest=digest_of(waiting), by=decider("olaf"))
    begin(waiting)
    client = browser_of(chief())
    assert (
        post(client, f"/claims/{waiting.id}/cancel/", reason="stuck", typed="").status_code == 422
    )
    assert (
        post(client, f"/claims/{waiting.id}/cancel/", reason="stuck", typed="network").status_code
        == 204
    )
    behind = task("network")
    assert behind.state == "blocked"
    page = get(client, "/workspaces/tf/network/")
    assert "An apply was lost." in page
    assert off(page, "Unlock…") == "Record the outcome of the lost apply first."
    question = get(client, "/workspace/settle/tf/network/", **DIALOG)
    for answer in (
        "Applied: all changes",
        "Not applied: no change was made",
        "Applied in part or unknown",
    ):
        assert answer in question
    assert (
        post(client, "/workspace/settle/tf/network/", reason="looked", what="").status_code == 422
    )
    assert (
        post(
            client, "/workspace/settle/tf/network/", reason="looked", what="not_applied"
        ).status_code
        == 204
    )
    assert get_workspace(ws("network")).locked_at is None
    text = get(client, "/workspaces/tf/network/")
    assert "An apply was lost." not in text


def test_a_forced_release_of_an_apply_is_shown_on_its_pages() -> None:
    make_task_pool()
    waiting = planned()
    approve_plan(claim_id=waiting.id, digest=digest_of(waiting), by=decider("olaf"))
    begin(waiting)
    force_release(claim_id=waiting.id, reason="gone")
    client = browser_of(chief())
    assert "cancelled" in get(client, f"/claims/{waiting.id}/")
    assert "locked" in get(client, "/workspaces/")


def test_an_approver_may_settle_a_lost_apply_and_a_viewer_may_not() -> None:
    make_task_pool()
    waiting = planned()
    approve_plan(claim_id=waiting.id, digest=digest_of(waiting), by=decider("olaf"))
    begin(waiting)
    force_release(claim_id=waiting.id, reason="gone")
    for name, role, status in (("vera", "viewer", 403), ("lind", "approver", 204)):
        client = browser_of(person(name, role))
        answer = client.post(
            "/workspace/settle/tf/network/", {"reason": "x", "what": "applied"}, headers={}
        )
        assert answer.status_code == (302 if status == 204 else status)


def test_the_history_of_a_workspace_is_shown_only_to_its_readers() -> None:
    make_task_pool()
    other = make_task_pool("other")
    done = task("net/core", kind="plan")
    begin(done)
    finish(done, "no_changes")
    client = browser_of(chief())
    assert f"/claims/{done.id}/" in get(client, "/workspaces/tf/net/core/")
    outsider = browser_of(person("vera", "viewer", pool=other))
    get(outsider, "/workspaces/tf/net/core/", 404)
    assert "net/core" not in get(outsider, "/workspaces/")
    assert outsider.post("/workspace/lock/tf/net/core/", {"reason": "x"}).status_code == 404
    assert get_workspace(ws("net/core")).locked_at is None


def test_parts_of_a_plan_are_served_only_to_readers_of_the_claim() -> None:
    make_task_pool()
    waiting = planned(plan=network_plan(), summary=NETWORK)
    plan = Plan.objects.get(claim_id=waiting.id)
    outsider = browser_of(person("vera", "viewer", pool=make_task_pool("other")))
    for path in ("changes/", "changes/0/", "raw/"):
        get(outsider, f"/claims/{waiting.id}/plan/{plan.pk}/{path}", 404)
    client = browser_of(person("ben", "viewer"))
    assert "aws_nat_gateway" in get(
        client, f"/claims/{waiting.id}/plan/{plan.pk}/changes/?q=nat_gateway"
    )
    assert "No resource matches" in get(
        client, f"/claims/{waiting.id}/plan/{plan.pk}/changes/?q=nothing-like-it"
    )
    assert "forces replacement" in get(client, f"/claims/{waiting.id}/plan/{plan.pk}/changes/0/")
    get(client, f"/claims/{waiting.id}/plan/{plan.pk}/changes/999/", 404)
    assert (
        client.get(f"/claims/{waiting.id}/plan/{plan.pk}/raw/").json()["terraform_version"]
        == "1.12.6"
    )
    get(client, f"/claims/{planned('b').id}/plan/{plan.pk}/raw/", 404)


def test_a_plan_without_valid_json_points_to_the_log() -> None:
    make_task_pool()
    client = browser_of(chief())
    assert "log of the plan below shows what it changes" in get(
        client, f"/claims/{planned('a').id}/"
    )
    assert "This is JSON, but not of a plan." in get(
        client, f"/claims/{planned('b', plan=['nonsense']).id}/"
    )


def test_texts_of_an_agent_are_escaped_on_every_page() -> None:
    make_task_pool()
    evil = "<script>alert(1)</script>"
    waiting = planned(
        "a",
        plan={"resource_changes": [resource(f"x.{evil}", "create", after={evil: evil})]},
        facts={"commit": evil},
    )
    client = browser_of(chief())
    for path in (
        f"/claims/{waiting.id}/",
        "/approvals/",
        f"/approvals/{waiting.id}/",
        "/workspaces/tf/a/",
    ):
        assert evil not in get(client, path), path
    assert "&lt;script&gt;alert(1)" in get(client, f"/claims/{waiting.id}/")


def test_a_failed_task_shows_code_reason_and_exit_code() -> None:
    make_task_pool()
    claim = task("a", kind="plan")
    begin(claim)
    say(claim, "boom\n")
    finish(
        claim, "failed", code="command_not_found", reason="sh: terrafrm: not found", exit_code=127
    )
    text = get(browser_of(chief()), f"/claims/{claim.id}/")
    for said in ("Failed.", "command_not_found", "exit 127", "terrafrm: not found", "plan failed"):
        assert said in text, said


@pytest.mark.parametrize(
    ("code", "exit_code"),
    [("timeout", None), ("killed", -9), ("exit_code", 137)],
    ids=["time limit", "SIGKILL", "SIGKILL below a shell"],
)
def test_a_cut_off_apply_shows_its_progress_and_the_locked_workspace(
    code: str, exit_code: int | None
) -> None:
    claim = applying()
    finish(
        claim,
        "failed",
        code=code,
        exit_code=exit_code,
        reason="It ran out. 1 of 2 changes was done; not finished: a.b.",
    )
    text = get(browser_of(chief()), f"/claims/{claim.id}/")
    for said in (
        "Failed.",
        "1 of 2 changes was done; not finished: a.b.",
        "Part of it may have been applied",
        "locked until an operator or approver records what happened.",
    ):
        assert said in text, said
    assert '<a href="/workspaces/tf/network/">network</a>' in text
    assert get_workspace(ws("network")).locked_at is not None


def test_an_apply_that_failed_by_itself_mentions_no_lock() -> None:
    claim = applying()
    finish(
        claim,
        "failed",
        code="exit_code",
        exit_code=1,
        reason="apply ended with exit code 1. 0 of 2 changes were done; failed: a.b.",
    )
    text = get(browser_of(chief()), f"/claims/{claim.id}/")
    assert "failed: a.b." in text
    assert "Part of it may have been applied" not in text and "is locked" not in text
    assert get_workspace(ws("network")).locked_at is None


def test_a_cancelled_apply_shows_the_progress_of_its_agent() -> None:
    claim = applying()
    force_release(claim_id=claim.id, reason="gone")
    with pytest.raises(StaleGeneration):
        finish(
            claim,
            "cancelled",
            code="killed",
            reason="It was ended before it was done. 2 of 3 changes were done.",
        )
    text = get(browser_of(chief()), f"/claims/{claim.id}/")
    assert "2 of 3 changes were done." in text and "is locked until an operator or approver" in text


def test_an_interrupted_apply_shows_its_limit_until_its_slot_is_free() -> None:
    claim = applying()
    run = Run.objects.filter(claim_id=claim.id).latest("generation")
    member = Member.objects.get(pk=run.member_id)
    force_release(claim_id=claim.id, reason="gone")
    record_interrupt(
        claim_id=claim.id,
        generation=run.generation,
        member=member,
        interrupt=Interrupt("the server ended it", 600, ("a.<b> (create)",), 2),
    )
    client = browser_of(chief())
    text = get(client, f"/claims/{claim.id}/")
    until = Run.objects.get(claim_id=claim.id, generation=run.generation).facts["interrupt"][
        "until"
    ]
    for said in (
        "The task is being stopped",
        "the server ended it",
        f"until {until[11:19]} UTC",
        "a.&lt;b&gt; (create)",
        "and 2 more",
    ):
        assert said in text, said
    confirm_stopped(
        member,
        [
            (slot.pk, run.generation)
            for slot in Slot.objects.filter(member=member, state="draining")
        ],
    )
    assert "The task is being stopped" not in get(client, f"/claims/{claim.id}/")


def applying() -> ClaimView:
    make_task_pool()
    waiting = planned()
    approve_plan(claim_id=waiting.id, digest=digest_of(waiting), by=decider("olaf"))
    begin(waiting)
    return waiting


def test_steps_of_a_task_are_listed_in_order_of_time() -> None:
    make_task_pool()
    waiting = planned()
    now = timezone.now()
    start = now - timedelta(hours=2)
    claim = view_claim(waiting.id)
    claim.created_at = start
    runs = [
        AgentRun(
            "plan", "tf-01", start + timedelta(seconds=10), start + timedelta(seconds=20), "lost"
        ),
        AgentRun(
            "plan", "tf-02", start + timedelta(seconds=30), start + timedelta(seconds=90), "planned"
        ),
    ]
    plan = ApprovalSummary(
        start + timedelta(seconds=90), given=(("lind", start + timedelta(seconds=100)),), needed=2
    )
    steps = steps_of_task(claim, runs, [plan], now, [88])
    assert [(s.word, s.is_current, s.is_next) for s in steps] == [
        ("waiting", False, False), ("plan lost", False, False), ("plan", False, False),
        ("awaiting approval", True, False), ("applying", False, True), ("applied", False, True),
    ]  # fmt: skip
    assert steps[-1].text == "then claim 88 of its workspace continues"
    many = [
        AgentRun(
            "plan",
            f"tf-{n}",
            start + timedelta(seconds=n),
            start + timedelta(seconds=n + 1),
            "lost",
        )
        for n in range(20)
    ]
    assert len(steps_of_task(claim, many, [plan], now)) <= 8
