"""Evacuations over REST: preview, order, progress, undo."""

from typing import Any

import pytest

from tests.api.conftest import Caller, Callers
from tests.claims.helpers import ask, make_pool, member
from tests.claims.ports.evacuation.helpers import claim_routed, members_of, step
from tests.claims.ports.quay import make_quay, work

pytestmark = pytest.mark.usefixtures("committed_tables")


@pytest.fixture
def operator(caller: Callers) -> Caller:
    return caller("operator")


def path(name: str, action: str = "evacuate") -> str:
    return f"members/{member(name).pk}/{action}/"


def test_preview_names_where_claims_go(operator: Caller) -> None:
    make_quay(members=2)
    claim = claim_routed()
    answer = operator.get(path("lb0"))
    assert answer.status == 200
    assert (answer.body["is_evacuating"], answer.body["since"]) == (False, None)
    assert answer.body["claims"] == [
        {
            "claim_id": claim.id, "owner": claim.owner or claim.requested_by, "state": "moves",
            "ports": ["tcp 30000"], "to": ["lb1 30000"], "code": None, "reason": "", "way_out": "",
            "until": None,
        }
    ]  # fmt: skip


def test_progress_names_what_moves_and_what_waits(operator: Caller) -> None:
    make_quay(members=2)
    first, second = claim_routed(), claim_routed(ip="10.0.0.8")
    answer = operator.post(path("lb0"), {"reason": "under attack", "stays": True})
    assert answer.status == 200
    assert (answer.body["is_evacuating"], answer.body["stays"]) == (True, True)
    assert answer.body["member"]["is_cordoned"] is True
    found = member("lb0").pk
    step(found)
    step(found)
    body = operator.get(path("lb0")).body
    assert (body["moved"], body["left"], body["stuck"]) == (0, 1, 0)
    assert body["waits_for"] == "lb1 30000: The listener is being created"
    states = {each["claim_id"]: (each["state"], each["to"]) for each in body["claims"]}
    assert states == {first.id: ("moving", ["lb1 30000"]), second.id: ("left", [])}
    work()
    step(found)
    assert operator.get(path("lb0")).body["moved"] == 1


def test_undo_ends_it_and_a_second_undo_changes_nothing(operator: Caller) -> None:
    make_quay(members=2)
    claim = claim_routed()
    operator.post(path("lb0"), {"reason": "under attack"})
    step(member("lb0").pk)
    for _ in range(2):
        answer = operator.post(path("lb0", "undo-evacuation"), {"reason": "it is over"})
        assert (answer.status, answer.body["is_evacuating"]) == (200, False)
    assert members_of(claim) == ["lb0"]
    assert not member("lb0").is_cordoned


@pytest.mark.parametrize(
    ("body", "field"),
    [({}, "reason"), ({"reason": ""}, "reason"), ({"reason": "x", "stays": 7}, "stays"),
     ({"reason": "x", "force": True}, "force")],
)  # fmt: skip
def test_wrong_body_names_its_field(operator: Caller, body: dict[str, Any], field: str) -> None:
    make_quay(members=1)
    answer = operator.post(path("lb0"), body)
    assert answer.status in (400, 422)
    assert field in str(answer.body)
    assert not member("lb0").is_cordoned


def test_pool_without_ports_is_refused_with_a_way_out(operator: Caller) -> None:
    make_pool("tf", slots=1, members=1)
    ask("tf")
    answer = operator.post(path("m0"), {"reason": "x"})
    assert (answer.status, answer.body["code"]) == (409, "no_ports")
    assert "Drain the member" in answer.body["way_out"]
