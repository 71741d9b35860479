"""A bulk create answers each claim like a single create, in request order."""

from typing import Any

import pytest
from django.db import OperationalError

from claims.allocation import bulk, new_claim
from claims.allocation.bulk import create_claims
from claims.allocation.claim_view import ClaimView
from claims.allocation.create import create_claim
from project.kernel.errors import BerthError, Invalid
from project.kernel.models import Event
from tests.claims.helpers import again, ask, held, is_sound, let_go, make_pool, serve, sql, wish

pytestmark = pytest.mark.usefixtures("tables")


def told(answers: list[ClaimView | BerthError]) -> list[str]:
    return [answer.state if isinstance(answer, ClaimView) else answer.code for answer in answers]


def test_bulk_claims_are_bound_first_and_then_wait_in_request_order() -> None:
    make_pool(slots=2, members=2)
    answers = create_claims([wish(owner=f"pod:{i}") for i in range(6)])
    assert told(answers) == ["bound"] * 4 + ["waiting"] * 2
    claims = [answer for answer in answers if isinstance(answer, ClaimView)]
    assert [claim.owner for claim in claims] == [f"pod:{i}" for i in range(6)]
    assert [claim.wait.place for claim in claims if claim.wait] == [1, 2]
    assert [again(claim).as_dict() for claim in claims[:4]] == [
        claim.as_dict() for claim in claims[:4]
    ]
    assert len({slot.id for claim in claims for slot in claim.slots}) == 4
    assert Event.objects.filter(verb="create", claim_id__isnull=False).count() == 6
    assert is_sound()


def test_a_bulk_create_mixes_every_kind_of_request_and_refusal() -> None:
    make_pool(slots=3, members=2)
    make_pool("tf", slots=["any", "plan"])
    answers = create_claims([
        wish(size=2, on_one_member=True), wish("tf"), wish(), wish("ghost"), wish(size=99),
        wish("tf", kind="plan"), wish(priority=9),
        wish("tf", task="plan_and_apply", workspace="net"),
        wish("tf", task="plan_and_apply", workspace="net"), wish(kind="train"),
    ])  # fmt: skip
    assert told(answers) == [
        "bound", "kind_missing", "bound", "waiting", "too_big", "bound", "bound", "bound",
        "blocked", "kind_not_offered",
    ]  # fmt: skip


def test_bulk_keys_replay_old_claims_and_repeats_within_the_call() -> None:
    make_pool(slots=9)
    first = ask(key="a")
    answers = create_claims(
        [
            wish(key="a"),
            wish(key="b"),
            wish(key="b"),
            wish(key="a", priority=1),
            wish(key="b", by="ben"),
            wish(),
        ]
    )
    assert told(answers) == ["bound", "bound", "bound", "key_reused", "bound", "bound"]
    ids = [answer.id for answer in answers if isinstance(answer, ClaimView)]
    assert ids[0] == first.id
    assert ids[1] == ids[2]
    assert len(set(ids)) == 4
    assert held() == 4


def test_a_bulk_create_does_not_overtake_a_waiting_claim() -> None:
    make_pool(slots=2)
    holders = [ask(), ask()]
    waiting = ask()
    let_go(holders[0])
    assert told(create_claims([wish(), wish(), wish(priority=1)])) == [
        "waiting",
        "waiting",
        "bound",
    ]
    let_go(holders[1])
    serve()
    assert again(waiting).state == "bound"


def test_a_bulk_create_takes_1000_claims_and_replays_them() -> None:
    make_pool(slots=400, members=2)
    answers = create_claims([wish(owner=f"pod:{i}", key=f"k{i}") for i in range(1000)])
    assert told(answers) == ["bound"] * 800 + ["waiting"] * 200
    assert [answer.wait.place for answer in answers[800:]] == list(range(1, 201))  # type: ignore[union-attr]
    again_ = create_claims([wish(owner=f"pod:{i}", key=f"k{i}") for i in range(1000)])
    assert [x.id for x in again_] == [x.id for x in answers]  # type: ignore[union-attr]
    assert sql("SELECT count(*) FROM claims_claim") == [(1000,)]
    assert is_sound()
    with pytest.raises(Invalid):
        create_claims([wish()] * 1001)


@pytest.mark.usefixtures("committed_tables")
def test_created_claims_are_answered_when_their_wait_cannot_be_explained(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """After an error, a caller without keys would create all claims twice."""

    def fail(*args: Any) -> None:
        raise OperationalError("statement timeout")

    make_pool(slots=1)
    for module in (bulk, new_claim):
        monkeypatch.setattr(module, "explain_claims", fail)
    assert told(create_claims([wish() for _ in range(3)])) == ["bound", "waiting", "waiting"]
    assert create_claim(wish(size=1, selector={})).state == "waiting"
