"""A selector names values of labels, or conditions: in, not_in, exists."""

import itertools
import json
from typing import Any

import pytest

from claims.allocation.claim_view import ClaimView
from pools.config.label_selector import describe_selector, matches
from project.kernel.errors import Invalid
from tests.claims.helpers import again, ask, let_go, make_pool, places, serve, sql, wish

pytestmark = pytest.mark.usefixtures("tables")

MEMBERS = [
    {"name": "a", "labels": {"zone": "eu-1", "tier": "old"}},
    {"name": "b", "labels": {"zone": "eu-2", "gpu": "h200"}},
    {"name": "c", "labels": {"zone": "us-1", "tier": "new"}},
    {"name": "d"},
]


def members_of(claim: ClaimView) -> list[str]:
    return [name for name, _, _ in places(claim)]


@pytest.mark.parametrize("layout", [1, "node"])
@pytest.mark.parametrize(
    ("selector", "expected"),
    [
        ({"zone": "eu-2"}, "b"),
        ({"zone": {"in": ["eu-1", "eu-2"]}}, "ab"),
        ({"tier": {"not_in": ["old"]}}, "bcd"),
        ({"gpu": {"exists": True}}, "b"),
        ({"zone": {"exists": False}}, "d"),
        ({"zone": {"in": ["eu-1", "us-1"], "not_in": ["us-1"]}}, "a"),
        ({"zone": "us-1", "tier": {"in": ["new", "old"]}}, "c"),
    ],
)
def test_a_claim_gets_only_members_that_its_selector_matches(
    selector: Any, expected: str, layout: Any
) -> None:
    make_pool(slots=layout, members=MEMBERS)
    claims = [ask(selector=selector) for _ in range(len(expected) + 1)]
    assert [members_of(claim) for claim in claims] == [*([name] for name in expected), []]
    assert claims[-1].is_waiting
    let_go(claims[0])
    serve()
    assert members_of(again(claims[-1])) == [expected[0]], "the allocator decides the same"


def test_database_and_code_select_the_same_members() -> None:
    """Each of these terms, and each pair of them, on each set of labels."""
    values: list[Any] = [
        "x", {"in": ["x", "y"]}, {"not_in": ["x"]}, {"exists": True}, {"exists": False},
        {"in": ["x"], "not_in": ["x"]}, {"not_in": ["y"], "exists": True},
    ]  # fmt: skip
    selectors: list[dict[str, Any]] = [{}]
    selectors += [{"k": value} for value in values]
    selectors += [{"k": k, "l": other} for k, other in itertools.product(values, values)]
    owned: list[dict[str, str]] = [{}, {"k": "x"}, {"k": "y"}, {"k": "z"}, {"l": "x"}]
    owned += [{"k": "x", "l": "y"}, {"k": "y", "l": "x"}]
    for selector, own in itertools.product(selectors, owned):
        found = sql("SELECT selects(%s, %s)", json.dumps(selector), json.dumps(own))
        assert found == [(matches(selector, own),)], (selector, own)


def test_several_slots_on_one_member_follow_the_selector() -> None:
    make_pool(slots=2, members=MEMBERS)
    term = {"zone": {"in": ["us-1", "us-2"]}}
    assert members_of(ask(size=2, on_one_member=True, selector=term)) == ["c", "c"]
    assert ask(size=2, selector=term).is_waiting


@pytest.mark.parametrize(
    ("selector", "field"),
    [
        ({"zone": {}}, "selector.zone"),
        ({"zone": {"in": []}}, "selector.zone.in"),
        ({"zone": {"in": "eu"}}, "selector.zone.in"),
        ({"zone": {"in": [1]}}, "selector.zone.in[0]"),
        ({"zone": {"exists": "yes"}}, "selector.zone.exists"),
        ({"zone": {"like": "eu"}}, "selector.zone.like"),
        ({"zone": ["eu"]}, "selector.zone"),
    ],
)
def test_a_faulty_condition_is_a_field_error(selector: Any, field: str) -> None:
    with pytest.raises(Invalid) as caught:
        wish(selector=selector)
    assert [fault.field for fault in caught.value.fields] == [field]


def test_a_claim_that_waits_for_labels_names_the_conditions() -> None:
    make_pool(members=MEMBERS)
    claim = ask(selector={"gpu": {"in": ["b200"]}, "zone": {"not_in": ["us-1"], "exists": True}})
    assert claim.wait is not None
    assert "gpu in (b200), zone not in (us-1), zone" in claim.wait.text
    assert describe_selector({"gpu": {"exists": False}, "zone": "eu-1"}) == "no gpu, zone=eu-1"
