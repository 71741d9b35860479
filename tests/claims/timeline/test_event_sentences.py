"""An event becomes a sentence and a glyph by its verb and by what it names."""

from datetime import UTC, datetime
from typing import Any

import pytest

from claims.timeline.messages import DisplayNames, EventLine, SlotPlace, phrase
from project.kernel.events.log import EventRow

NAMES = DisplayNames({1: "web"}, {2: ("m1", 1)}, {3: SlotPlace(2, "slot", 4)}, {5: "ana"})
SLOT = {"pool_id": 1, "member_id": 2, "slot_id": 3, "claim_id": 5}
CLAIM, MEMBER, POOL = {"pool_id": 1, "claim_id": 5}, {"pool_id": 1, "member_id": 2}, {"pool_id": 1}


def line(verb: str, ids: dict[str, int], **more: Any) -> EventLine:
    columns: dict[str, Any] = dict.fromkeys(("pool_id", "member_id", "slot_id", "claim_id"))
    values = {
        "generation": 1,
        "before": "",
        "after": "",
        "actor": "ben",
        "reason": "",
        "data": None,
    }
    return phrase(EventRow(1, 1, datetime.now(UTC), verb, **columns | ids | values | more), NAMES)


@pytest.mark.parametrize(
    ("verb", "ids", "text"),
    [
        ("create", CLAIM, "5 ana is blocked"),
        ("bind", SLOT, "5 ana bound to m1 · slot 4"),
        ("lose", SLOT, "5 ana lost, m1 · slot 4"),
        ("lose", MEMBER, "m1 is lost"),
        ("clean", SLOT, "m1 · slot 4 clean again, after 5 ana"),
        ("cordon", MEMBER, "m1 cordoned"),
        ("revoke_token", MEMBER, "m1 has its tokens revoked"),
        ("revoke_token", {}, "token revoked"),
        ("pause", POOL, "web paused"),
        ("lock", POOL, "workspace locked in web"),
        ("sign_in", {}, "ben signed in"),
        ("late_release", CLAIM, "5 ana was released too late, without effect"),
        ("a_verb_of_old", MEMBER, "m1 a verb of old"),
        ("a_verb_of_old", POOL, "web a verb of old"),
    ],
)
def test_a_sentence_begins_with_what_the_event_names(
    verb: str, ids: dict[str, int], text: str
) -> None:
    assert line(verb, ids).text == text


def test_a_change_of_a_listener_names_its_port_and_its_health() -> None:
    ids = {"pool_id": 1, "member_id": 2, "claim_id": 5}
    data = {"lane": "tcp", "number": 30001, "word": "unhealthy"}
    assert line("observe", ids, data=data).text == "5 ana has listener tcp 30001 of m1 unhealthy"


@pytest.mark.parametrize(
    ("ids", "name"),
    [(CLAIM, "5 ana"), (MEMBER, "m1"), (POOL, "web")],
    ids=["claim", "member", "pool"],
)
def test_an_operation_given_up_is_no_member_given_up(ids: dict[str, int], name: str) -> None:
    found = line("give_up", ids, data={"operation": {"lane": "member:2", "kind": "sync"}})
    assert (found.text, found.css) == (f"{name} has an operation that failed for good", "lost")
    assert line("give_up", MEMBER).text == "m1 has its automatic restarts stopped"


@pytest.mark.parametrize(
    ("verb", "css"),
    [("cancel", "cancelled"), ("expire", "expired"), ("reject", "rejected"), ("finish", "done")],
)
def test_an_end_has_the_same_glyph_with_and_without_a_slot(verb: str, css: str) -> None:
    assert line(verb, SLOT, after="idle").css == line(verb, CLAIM, after="ended").css == css


def test_a_role_is_no_glyph() -> None:
    assert line("grant", POOL, after="operator").css == "ready"


def test_a_line_about_a_claim_names_a_person_that_stepped_in() -> None:
    assert line("cancel", CLAIM).by == "ben"
    assert line("release", SLOT).by == ""
    assert line("cordon", MEMBER).by == "ben"
    assert line("sign_in", {}).by == ""
    assert line("cancel", CLAIM, actor="finalize").by == ""
