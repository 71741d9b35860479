"""Messages about a plan before a decision and about a task after its end."""

import json
import re
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from django.utils import timezone

from claims.allocation.selectors import view_claim
from claims.tasks.approvals.reservations import extend_reservation
from claims.tasks.failure_hints import WAYS_OUT
from pools.models import Pool
from slots import agent
from tests.claims.tasks.plans.helpers import begin, finish, make_task_pool, planned, task
from tests.dashboard.helpers import chief, person
from tests.dashboard.plain_browser import DIALOG, browser_of, get

pytestmark = pytest.mark.django_db


def answer_many(client: Any, path: str, claims: list[Any], **fields: Any) -> Any:
    page = get(client, f"{path}?{'&'.join(f'claim={c.id}' for c in claims)}", 200, **DIALOG)
    seen = re.search(r'name="seen" value="(\w+)"', page)
    plans = re.findall(r'name="plan" value="([^"]+)"', page)
    return client.post(
        path, {"plan": plans, "seen": seen[1] if seen else "", **fields}, headers=DIALOG
    )


def test_a_frozen_pool_says_when_the_apply_would_start() -> None:
    pool = make_task_pool()
    waiting = planned()
    client = browser_of(person("lind", "approver"))
    paths = [
        f"/claims/{waiting.id}/",
        f"/approvals/{waiting.id}/",
        f"/claims/{waiting.id}/approve/",
    ]
    for path in paths:
        text = get(client, path)
        assert "The apply starts at once on tf-" in text and "frozen" not in text, path
    assert "frozen" not in get(client, f"/approvals/approve/?claim={waiting.id}", 200, **DIALOG)
    ends = timezone.now() + timedelta(hours=5)
    Pool.objects.filter(pk=pool.pk).update(frozen_until=ends)
    for path in paths:
        text = get(client, path)
        assert (
            "The pool is frozen; the claim goes first in the queue, and the apply starts when the "
            f"freeze ends, {ends:%d %b %H:%M} UTC"
        ) in text, path
        assert "starts at once" not in text, path


def test_an_inbox_entry_opened_as_a_page_redirects_to_its_claim() -> None:
    make_task_pool()
    waiting = planned()
    client = browser_of(person("lind", "approver"))
    answer = client.get(f"/approvals/{waiting.id}/", headers={"Sec-Fetch-Dest": "document"})
    assert (answer.status_code, answer["Location"]) == (302, f"/claims/{waiting.id}/#decide")
    assert "Approve and apply" in get(
        client, f"/approvals/{waiting.id}/", 200, **{"Sec-Fetch-Dest": "empty"}
    )


def test_a_bulk_approval_names_each_frozen_pool() -> None:
    pool = make_task_pool()
    make_task_pool("calm")
    both = [planned("a"), planned("b", pool="calm")]
    ends = timezone.now() + timedelta(hours=5)
    Pool.objects.filter(pk=pool.pk).update(frozen_until=ends)
    client = browser_of(person("lind", "approver"))
    text = get(client, f"/approvals/approve/?claim={both[0].id}&claim={both[1].id}", 200, **DIALOG)
    assert (
        f"tf is frozen until {ends:%d %b %H:%M} UTC: approved claims there go first in the queue"
        in text
    )
    assert "calm is frozen" not in text
    assert "frozen" not in get(client, f"/approvals/approve/?claim={both[1].id}", 200, **DIALOG)


def test_a_bulk_extension_skips_plans_at_their_limit_and_says_so() -> None:
    make_task_pool(members=4)
    plain, far = planned("a"), planned("b")
    extend_reservation(claim_id=far.id, seconds=28 * 86400, reason="long leave")
    client = browser_of(person("lind", "approver"))
    before = [view_claim(c.id).expires_at for c in (plain, far)]
    answer = answer_many(
        client, "/approvals/extend/", [far, plain], reason="holiday", **{"for": "2d"}
    )
    assert answer.status_code == 204
    said = json.loads(answer["HX-Trigger"])["berth:done"]["say"]
    assert said == (
        f"1 plan waits 2d longer. 1 failed: Claim {far.id} would wait for more than 30 "
        "days from now."
    )
    after = [view_claim(c.id).expires_at for c in (plain, far)]
    assert before[0] is not None and after[0] is not None
    assert (after[0] - before[0], after[1]) == (timedelta(days=2), before[1])


def test_a_bulk_extension_without_an_extendable_plan_says_why() -> None:
    make_task_pool()
    far = planned()
    extend_reservation(claim_id=far.id, seconds=28 * 86400, reason="long leave")
    answer = answer_many(
        browser_of(person("lind", "approver")),
        "/approvals/extend/",
        [far],
        reason="holiday",
        **{"for": "2d"},
    )
    assert answer.status_code == 422
    assert "would wait for more than 30 days from now" in answer.content.decode()


@pytest.mark.parametrize("code", sorted(WAYS_OUT))
def test_a_failed_task_shows_the_way_out_of_its_code(code: str) -> None:
    make_task_pool()
    claim = task("a", kind="plan")
    begin(claim)
    finish(claim, "failed", code=code, reason="It is the end.", exit_code=None)
    text = get(browser_of(chief()), f"/claims/{claim.id}/").replace("’", "'")
    assert WAYS_OUT[code].replace("’", "'") in text
    assert "It is the end. It holds no slot." in text, "each sentence ends once"


def test_every_failure_code_of_the_agent_has_a_way_out() -> None:
    sources = [path.read_text() for path in Path(str(agent.__file__)).parent.rglob("*.py")]
    named = {code for text in sources for code in re.findall(r'TaskFailed\(\s*"([a-z_]+)"', text)}
    assert len(named) > 10
    assert named - {
        "plan_again",
        "plan_differs",
        "plan_refused",
        "binary_differs",
        "stopped",
        "cancelled",
    } <= set(WAYS_OUT)
