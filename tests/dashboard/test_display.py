"""Display classes of slots, claims and members, and the same rule in SQL."""

import re
from datetime import UTC, datetime, timedelta
from itertools import product
from pathlib import Path

import pytest

from claims.display import claim_class, claim_word, filter_of_class
from claims.states import CLAIM, OUTCOMES
from pools.states import MEMBER
from project.kernel.db.sql import run
from project.kernel.ui import formatting
from slots.pages import dashboard_queries_sql
from slots.pages.display import (
    HIDDEN,
    SLOT_CLASSES,
    SlotUse,
    bar_parts,
    member_class,
    pool_class,
)
from slots.states import SLOT

CSS = (Path(__file__).resolve().parents[2] / "project/static/berth/berth.css").read_text()


@pytest.mark.parametrize(
    ("state", "lane", "is_open", "member_state", "outcome", "shown"),
    [
        ("held", "plan", True, "ready", "", "running"),
        # Its member is cordoned or leaves: the member carries the mark.
        ("held", "any", False, "ready", "", "running"),
        ("held", "tcp", True, "ready", "", "bound"),
        ("held", "plan", False, "offline", "", "offline"),
        ("reserved", "any", True, "ready", "", "reserved"),
        ("reserved", "any", False, "offline", "", "offline"),
        ("draining", "node", False, "ready", "", "draining"),
        ("draining", "node", False, "offline", "", "draining"),
        ("retired", "slot", False, "offline", "lost", "lost"),
        ("retired", "slot", False, "ready", "released", ""),
        ("retired", "slot", False, "ready", "", ""),
        ("idle", "slot", True, "ready", "", "idle"),
        ("idle", "slot", False, "ready", "", "closed"),
        ("idle", "slot", False, "offline", "", "offline"),
        ("idle", "slot", False, "creating", "", "offline"),
        ("idle", "slot", False, "gone", "lost", "lost"),
        ("idle", "slot", False, "gone", "", ""),
    ],
)
@pytest.mark.django_db
def test_a_slot_has_its_display_class(
    state: str, lane: str, is_open: bool, member_state: str, outcome: str, shown: str
) -> None:
    assert classify(state, lane, is_open, member_state, outcome) == shown


@pytest.mark.django_db
def test_every_slot_has_a_known_display_class() -> None:
    for facts in product(SLOT.states, ("plan", "any", "slot"), (True, False), MEMBER.states):
        shown = classify(*facts)
        is_shown = facts[0] != "retired" and facts[3] != "gone"
        assert shown in (SLOT_CLASSES if is_shown else (HIDDEN,)), facts


def classify(state: str, lane: str, is_open: bool, member_state: str, outcome: str = "") -> object:
    rows = run(
        f"""WITH claims_claim AS (SELECT 1::bigint AS id, %(outcome)s::text AS outcome),
        slot AS (SELECT %(state)s::text AS state, %(lane)s::text AS lane,
          %(is_open)s::bool AS is_open, 1::bigint AS last_claim_id),
        member AS (SELECT %(member_state)s::text AS state)
        SELECT {dashboard_queries_sql.statements.fragments["_class"]} AS name FROM slot, member""",
        {
            "state": state,
            "lane": lane,
            "is_open": is_open,
            "member_state": member_state,
            "outcome": outcome,
        },
    )
    return rows[0].name


@pytest.mark.parametrize(
    ("state", "step", "outcome", "shown", "word"),
    [
        ("waiting", "", "", "waiting", "waiting"),
        ("blocked", "plan", "", "waiting", "blocked"),
        ("bound", "", "", "bound", "bound"),
        ("bound", "plan", "", "running", "running"),
        ("bound", "apply", "", "applying", "applying"),
        ("reserved", "plan", "", "apply_pending", "awaiting approval"),
        ("parked", "plan", "", "apply_pending", "awaiting approval"),
        ("ended", "", "released", "done", "released"),
        ("ended", "apply", "applied", "done", "applied"),
        ("ended", "plan", "planned", "done", "planned"),
        ("ended", "", "lost", "lost", "lost"),
        ("ended", "", "unacknowledged", "unacknowledged", "unacknowledged"),
    ],
)
def test_a_claim_has_its_display_class_and_word(
    state: str, step: str, outcome: str, shown: str, word: str
) -> None:
    assert claim_class(state, outcome=outcome, step=step) == shown
    assert claim_word(state, outcome=outcome, step=step) == word


def test_the_filter_of_a_claim_class_matches_every_claim_of_the_class() -> None:
    for state, step in product(CLAIM.states, ("", "plan", "apply")):
        for outcome in OUTCOMES if state == "ended" else [""]:
            match = filter_of_class(claim_class(state, outcome=outcome, step=step))
            assert state in match.states
            assert match.steps is None or step in match.steps
            assert match.outcomes is None or outcome in match.outcomes


def properties_of(name: str) -> dict[str, str]:
    """The custom properties of the rules that apply to every element of a class."""
    found = {}
    for selectors, body in re.findall(r"([^{}]+)\{([^{}]*)\}", re.sub(r"/\*.*?\*/", "", CSS)):
        if f".{name}" in [selector.strip() for selector in selectors.split(",")]:
            found |= dict(re.findall(r"(--[a-z]+):([^;]+)", body))
    return found


def test_every_class_has_a_colour_and_a_glyph() -> None:
    of_claims = {
        claim_class(state, outcome=outcome, step=step)
        for state, step in product(CLAIM.states, ("", "plan", "apply"))
        for outcome in (OUTCOMES if state == "ended" else [""])
    }
    assert len(of_claims) == 12
    for name in (
        *SLOT_CLASSES,
        *of_claims,
        "paused",
        "pending",
        "active",
        "deleting",
        "cordoned",
    ):
        properties = properties_of(name)
        colour = re.fullmatch(r"var\((--[a-z0-9]+)\)", properties["--c"])
        assert colour and re.search(rf"{colour[1]}:[^;]+;", CSS), name
        assert re.fullmatch(r'path\("M[^"]+"\)|circle\([^)]+\)', properties["--g"]), name


@pytest.mark.parametrize(
    ("state", "marks", "shown"),
    [
        ("ready", {}, "ready"),
        ("ready", {"is_cordoned": True}, "cordoned"),
        ("ready", {"is_cordoned": True, "is_leaving": True}, "draining"),
        ("offline", {"is_cordoned": True}, "unhealthy"),
        ("offline", {"is_lost": True}, "lost"),
        ("creating", {}, "creating"),
        ("deleting", {"is_leaving": True}, "deleting"),
        ("gone", {}, "lost"),
    ],
)
def test_a_member_has_its_display_class(state: str, marks: dict[str, bool], shown: str) -> None:
    given = {"is_cordoned": False, "is_leaving": False, **marks}
    assert member_class(state, **given) == shown


def test_a_pause_ends_by_the_clock() -> None:
    now = datetime(2026, 3, 12, 14, 3, tzinfo=UTC)
    assert pool_class("active", paused_until=now + timedelta(seconds=1), now=now) == "paused"
    assert pool_class("active", paused_until=now, now=now) == "active"
    assert pool_class("deleting", paused_until=now + timedelta(hours=1), now=now) == "deleting"


def test_bar_parts_are_ordered_and_leave_out_zero_counts() -> None:
    parts = bar_parts({"idle": 1, "lost": 2, "running": 2345, "draining": 0})
    assert [(part.name, part.count) for part in parts] == [
        ("running", 2345),
        ("lost", 2),
        ("idle", 1),
    ]
    assert (parts[0].digits, parts[2].word) == (5, "open")
    assert SlotUse(22, 8, 36).percent == pytest.approx(83.33, abs=0.01)
    assert SlotUse(0, 0, 0).percent is None


@pytest.mark.parametrize(
    ("seconds", "said"),
    [
        (0, "0 s"),
        (59.9, "59 s"),
        (60, "1 min"),
        (124, "2 min 4 s"),
        (7380, "2 h 3 min"),
        (3600, "1 h"),
        (90000, "1 d 1 h"),
        (-5, "0 s"),
    ],
)
def test_a_duration_has_two_units_at_most(seconds: float, said: str) -> None:
    assert formatting.duration(seconds) == said


@pytest.mark.parametrize(
    ("low", "high", "said"),
    [
        (360, 1080, "6–18 min"),
        (5, 40, "5–40 s"),
        (0, 1, "0–1 s"),
        (40, 170, "40 s–3 min"),
        (3600, 3 * 3600, "1–3 h"),
        (60, 60, "1 min"),
    ],
)
def test_an_estimate_is_shown_as_a_range(low: float, high: float, said: str) -> None:
    assert formatting.span(low, high) == said
