"""The body of a claim is read as a whole; each fault names its field."""

from typing import Any

import pytest

from claims.allocation.requests.claim_request import (
    ClaimRequest,
    parse_claim,
    read_claim,
    shape_digest,
)
from pools.config import parsing
from pools.config.spec import LeaseSpec
from project.kernel.errors import Invalid

FAULTS: list[tuple[dict[str, Any], list[str]]] = [
    ({}, ["pool"]),
    ({"pool": "a", "pools": ["b"]}, ["pools"]),
    ({"pool": "A b"}, ["pool"]),
    ({"pool": 7}, ["pool"]),
    ({"pools": []}, ["pools"]),
    ({"pools": "a"}, ["pools"]),
    ({"pools": ["a", "a"]}, ["pools[1]"]),
    ({"pools": ["a", None]}, ["pools[1]"]),
    ({"pools": [f"p{i}" for i in range(17)]}, ["pools"]),
    ({"pool": "a", "size": 0}, ["size"]),
    ({"pool": "a", "size": 1001}, ["size"]),
    ({"pool": "a", "size": True}, ["size"]),
    ({"pool": "a", "size": "3"}, ["size"]),
    ({"pools": ["a", "b"], "size": 501}, ["size"]),
    ({"pool": "a", "priority": 100}, ["priority"]),
    ({"pool": "a", "priority": -101}, ["priority"]),
    ({"pool": "a", "kind": "Plan"}, ["kind"]),
    ({"pool": "a", "task": "apply"}, ["task"]),
    ({"pool": "a", "task": "plan", "kind": "train"}, ["kind"]),
    ({"pool": "a", "task": "plan_and_apply"}, ["workspace"]),
    ({"pool": "a", "workspace": "../x y"}, ["workspace"]),
    ({"pool": "a", "owner": "x" * 161}, ["owner"]),
    ({"pool": "a", "owner": 5}, ["owner"]),
    ({"pool": "a", "owner": "a\x00b"}, ["owner"]),
    ({"pool": "a", "key": "k" * 121}, ["key"]),
    ({"pool": "a", "contiguous": "yes"}, ["contiguous"]),
    ({"pool": "a", "same_number": True}, ["same_number"]),
    ({"pool": "a", "selector": ["gpu"]}, ["selector"]),
    ({"pool": "a", "selector": {"gpu": 4}}, ["selector.gpu"]),
    ({"pool": "a", "selector": {f"l{i}": "x" for i in range(17)}}, ["selector"]),
    ({"pool": "a", "hold_for": 30}, ["hold_for"]),
    ({"pool": "a", "hold_for": "soon"}, ["hold_for"]),
    ({"pool": "a", "hold_for": "0s"}, ["hold_for"]),
    ({"pool": "a", "acknowledge_within": "2d"}, ["acknowledge_within"]),
    (
        {"pool": "a", "hold_for": "1m", "acknowledge_within": "1m", "heartbeat_within": "2m"},
        ["acknowledge_within", "heartbeat_within"],
    ),
    ({"slot": 3, "size": 2}, ["slot"]),
    ({"slot": 0}, ["slot"]),
    ({"slot": 3, "selector": {"gpu": "t4"}}, ["selector"]),
    (
        {"pool": "a", "colour": "blue", "size": 0, "priority": "high"},
        ["colour", "size", "priority"],
    ),
]


@pytest.mark.parametrize(("body", "fields"), FAULTS, ids=[str(body)[:60] for body, _ in FAULTS])
def test_every_fault_of_a_claim_body_is_named(body: dict[str, Any], fields: list[str]) -> None:
    request, faults = read_claim(body, requested_by="ana")
    assert request is None
    assert sorted(fault.field for fault in faults) == sorted(fields)
    assert all(fault.message for fault in faults)


def test_a_body_that_is_no_mapping_is_refused() -> None:
    with pytest.raises(Invalid):
        parse_claim([1, 2], requested_by="ana")


def test_omitted_fields_have_their_defaults() -> None:
    assert parse_claim({"pool": "a"}, requested_by="ana") == ClaimRequest(
        pools=("a",), requested_by="ana"
    )


def test_a_task_sets_its_kind_and_plan_and_apply_is_serial() -> None:
    plan = parse_claim({"pool": "a", "task": "plan", "workspace": "net/prod"}, requested_by="ana")
    both = parse_claim(
        {"pool": "a", "task": "plan_and_apply", "workspace": "net/prod"}, requested_by="ana"
    )
    assert (plan.kind, plan.is_serial, plan.is_retried) == ("plan", False, True)
    assert (both.kind, both.is_serial, both.is_retried) == ("plan_and_apply", True, True)


def test_the_key_may_be_given_in_the_header() -> None:
    assert parse_claim({"pool": "a"}, requested_by="ana", key="k").key == "k"
    assert parse_claim({"pool": "a", "key": "k"}, requested_by="ana", key="k").key == "k"
    assert (
        read_claim({"pool": "a", "key": "k"}, requested_by="ana", key="other")[1][0].field == "key"
    )


@pytest.mark.parametrize(
    ("body", "is_simple"),
    [
        ({"pool": "a"}, True),
        # Without effect on a claim of one slot.
        ({"pool": "a", "contiguous": True, "on_one_member": True}, True),
        ({"pool": "a", "size": 2}, False),
        ({"pools": ["a", "b"]}, False),
        ({"pool": "a", "selector": {"gpu": "t4"}}, False),
    ],
)
def test_a_simple_request_is_for_one_slot_of_one_pool_without_terms(
    body: dict[str, Any], is_simple: bool
) -> None:
    request = parse_claim(body, requested_by="ana")
    assert request.is_simple is is_simple
    assert not (request.is_simple and request.terms)


def test_the_digest_covers_the_request_but_not_its_key() -> None:
    one = parse_claim({"pool": "a", "key": "1"}, requested_by="ana")
    same = parse_claim({"pools": ["a"], "key": "2", "size": 1, "priority": 0}, requested_by="ben")
    other = parse_claim({"pool": "a", "key": "1", "priority": 1}, requested_by="ana")
    assert one.digest() == same.digest() != other.digest()


def test_the_order_of_labels_does_not_change_the_shape() -> None:
    one = parse_claim(
        {"pool": "a", "selector": {"x": "1", "y": "2"}, "owner": "p"}, requested_by="ana"
    )
    two = parse_claim(
        {"pool": "a", "selector": {"y": "2", "x": "1"}, "priority": 9}, requested_by="ben"
    )
    assert shape_digest(one.pools, "slot", 1, one.terms) == shape_digest(
        two.pools, "slot", 1, two.terms
    )


@pytest.mark.parametrize(
    ("body", "lease", "due_in"),
    [
        ({}, LeaseSpec(), None),
        ({}, LeaseSpec(acknowledge=30, hold=3600), 30),
        ({"acknowledge_within": "1m"}, LeaseSpec(acknowledge=30, heartbeat=45), 45),
        ({"hold_for": "10s"}, LeaseSpec(acknowledge=30), 10),
    ],
)
def test_the_first_check_is_due_at_the_nearest_limit(
    body: dict[str, Any], lease: LeaseSpec, due_in: float | None
) -> None:
    spec = parse_claim({"pool": "a", **body}, requested_by="ana").spec(lease)
    assert ('"due_in"' in spec) is (due_in is not None)
    if due_in is not None:
        assert f'"due_in": {due_in}' in spec.replace(".0", "")


def test_only_the_first_of_many_unknown_fields_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """The body is read on the event loop, where other requests wait; the suggestion of a name
    takes 40 us for each field.
    """
    looked: list[str] = []
    near = parsing.suggest_names
    monkeypatch.setattr(
        parsing, "suggest_names", lambda name, *more: looked.append(name) or near(name, *more)
    )  # type: ignore[func-returns-value]
    with pytest.raises(Invalid) as caught:
        parse_claim(
            {"pool": "a", "size": 0, **{f"f{i}": i for i in range(5_000)}}, requested_by="ana"
        )
    named = [fault.field for fault in caught.value.fields]
    assert named == [*(f"f{i}" for i in range(parsing.MOST_UNKNOWN)), "", "size"]
    assert (
        caught.value.fields[parsing.MOST_UNKNOWN].message
        == f"{5_000 - parsing.MOST_UNKNOWN} more fields are not known."
    )
    assert len(looked) == parsing.MOST_UNKNOWN
