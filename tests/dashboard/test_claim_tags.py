"""Template tags that write lists of claims, pools and slots; every name in them is escaped."""

from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import pytest

from claims.templatetags.claims import (
    blocker_links,
    cell_clock,
    cell_title,
    claim_links,
    holder_links,
    pool_links,
)
from project.kernel.templatetags.berth import counted, linked_parts

SINCE = datetime(2026, 3, 29, 12, tzinfo=UTC)
CLOCK = '<span data-t="2026-03-29T12:00:00.000Z" data-f="{}"></span>'


def cell(**values: Any) -> Any:
    return SimpleNamespace(
        **{
            "place": "any 0",
            "word": "running",
            "name": "running",
            "state": "held",
            "claim_id": 7,
            "since": SINCE,
            **values,
        }
    )


def link(claim: int) -> str:
    return f'<a class="mono" href="/claims/{claim}/">{claim}</a>'


def test_claim_links_name_the_first_and_count_the_rest() -> None:
    assert claim_links([1, 2]) == f"{link(1)}, {link(2)}"
    assert claim_links([1, 2, 3, 4], 2) == f"{link(1)}, {link(2)} and 2 more"
    assert claim_links([]) == ""


def test_holder_links_mark_reserved_and_draining_slots() -> None:
    assert (
        holder_links([(1, "held"), (2, "reserved"), (3, "draining")])
        == f"{link(1)}, {link(2)} reserved, {link(3)} leaves"
    )


def test_keeper_links_show_the_state_of_the_claim() -> None:
    blocker = SimpleNamespace(claim_id=1, css="running", word="running")
    assert (
        blocker_links([blocker])
        == f'<span class="nw">{link(1)} <span class="st running">running</span></span>'
    )


def test_pool_links_are_joined_by_commas() -> None:
    assert (
        pool_links(["a", "b"])
        == '<a class="why" href="/pools/a/">a</a>, <a class="why" href="/pools/b/">b</a>'
    )


def test_a_cell_is_titled_with_its_claim_and_owner() -> None:
    assert cell_title(cell(), {7: "ci"}) == "any 0: running, 7 ci"
    assert cell_title(cell(claim_id=None, word="open"), {}) == "any 0: open"


@pytest.mark.parametrize(
    ("values", "deadlines", "html"),
    [
        ({}, None, CLOCK.format("brief")),
        ({"name": "offline"}, None, ""),
        ({"name": "draining", "state": "draining"}, None, CLOCK.format("brief")),
        ({"name": "reserved", "state": "reserved"}, {7: SINCE}, CLOCK.format("brief-left")),
        ({"name": "reserved", "state": "reserved"}, {}, ""),
        ({"name": "idle", "state": "idle", "claim_id": None}, None, ""),
    ],
)
def test_the_clock_of_a_cell_shows_a_hold_a_drain_or_a_reservation(
    values: dict[str, Any], deadlines: Any, html: str
) -> None:
    assert cell_clock(cell(**values), deadlines) == html


def test_parts_of_a_bar_are_counted_in_words() -> None:
    assert (
        counted([SimpleNamespace(count=3, word="held"), SimpleNamespace(count=2, word="open")])
        == "3 held, 2 open"
    )


def test_linked_parts_escape_text_and_addresses() -> None:
    plain = SimpleNamespace(text="<b>", href="", is_strong=False)
    strong = SimpleNamespace(text="tf & co", href='/pools/"tf"/', is_strong=True)
    assert (
        linked_parts([plain, strong])
        == '&lt;b&gt;<a href="/pools/&quot;tf&quot;/"><b>tf &amp; co</b></a>'
    )
