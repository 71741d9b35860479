"""A pool's configuration is read as a whole (P1): one field error per fault, each with its way
out.
"""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pools.config.durations import format_duration, parse_duration
from pools.config.parsing import Faults, read_mapping, read_text
from pools.config.spec import OptionReader, parse_pool, read_pool
from pools.lifecycle.policy import FieldChange, diff_values, list_fixed, offers_slots
from pools.providers.base import option_readers
from project.kernel.errors import Invalid


def no_options(options: Any, where: str, faults: Faults) -> Any:
    return dict(read_mapping(options, where, (), faults))


PROVIDERS = {"static": OptionReader(no_options)}
GOOD: dict[str, Any] = {"name": "lab", "slots": 3}


def faults_of(**changes: Any) -> list[tuple[str, str, str]]:
    config = {k: v for k, v in (GOOD | changes).items() if v is not ...}
    return [(f.field, f.message, f.way_out) for f in read_pool(config, PROVIDERS)[1]]


@pytest.mark.parametrize(
    ("changes", "fields"),
    [
        ({}, []),
        ({"name": ...}, ["name"]),
        ({"name": ""}, ["name"]),
        ({"name": "Lab"}, ["name"]),
        ({"name": "x" * 64}, ["name"]),
        ({"name": "-lab"}, ["name"]),
        ({"name": "new"}, ["name"]),
        ({"name": 7}, ["name"]),
        ({"kind": "Claim"}, ["kind"]),
        ({"colour": "red"}, ["colour"]),
        ({"provider": "azure"}, ["provider"]),
        ({"provider": {"kind": "azure"}}, ["provider.kind"]),
        ({"provider": {}}, ["provider.kind"]),
        ({"provider": {"kind": "static", "region": "eu"}}, ["provider.region"]),
        ({"provider": 3}, ["provider"]),
        ({"slots": ...}, ["slots"]),
        ({"slots": 0}, ["slots"]),
        ({"slots": -1}, ["slots"]),
        ({"slots": True}, ["slots"]),
        ({"slots": 2.5}, ["slots"]),
        ({"slots": "nodes"}, ["slots"]),
        ({"slots": []}, ["slots"]),
        ({"slots": ["any", "pln", 3]}, ["slots[1]", "slots[2]"]),
        (
            {"slots": [{"class": "gpu", "count": 0, "accepts": []}, "any"]},
            ["slots[0].count", "slots[0].accepts", "slots[1]"],
        ),
        ({"slots": [{"class": "GPU", "accepts": ["t"]}]}, ["slots[0].class"]),
        (
            {"slots": [{"class": "gpu", "accepts": ["t"]}, {"class": "gpu", "accepts": ["t"]}]},
            ["slots[1].class"],
        ),
        ({"slots": [{"class": "gpu", "accept": ["t"]}]}, ["slots[0].accept", "slots[0].accepts"]),
        ({"slots": {"shared": True}}, ["slots.ports"]),
        ({"slots": {"ports": "1-9"}}, ["slots.protocols"]),
        ({"slots": {"ports": "1-9", "shared": True, "protocols": ["tcp"]}}, ["slots.protocols"]),
        ({"slots": {"ports": "1-9", "protocols": ["tpc"]}}, ["slots.protocols[0]"]),
        ({"slots": {"ports": "1-9", "protocols": ["tcp", "tcp"]}}, ["slots.protocols[1]"]),
        ({"slots": {"ports": "0-9", "shared": True}}, ["slots.ports"]),
        ({"slots": {"ports": "1-65536", "shared": True}}, ["slots.ports"]),
        ({"slots": {"ports": "9-9", "shared": True}}, ["slots.ports"]),
        ({"slots": {"ports": "9-1", "shared": True}}, ["slots.ports"]),
        ({"slots": {"ports": 9, "shared": True}}, ["slots.ports"]),
        ({"slots": {"ports": "1-9", "shared": True, "segment": 10}}, ["slots.segment"]),
        ({"slots": {"ports": "1-9", "shared": True, "segment": 0}}, ["slots.segment"]),
        ({"slots": {"ports": "1-9", "shared": True, "quota": 0}}, ["slots.quota"]),
        (
            {"slots": {"ports": "1-9", "shared": True, "quota": 2, "foreign": [1, 2]}},
            ["slots.quota"],
        ),
        ({"slots": {"ports": "1-9", "shared": True, "foreign": [0]}}, ["slots.foreign[0]"]),
        ({"slots": {"ports": "1-9", "shared": "yes"}}, ["slots.shared", "slots.protocols"]),
        ({"members": {"min": 3, "max": 2}}, ["members.min"]),
        ({"members": {"min": -1}}, ["members.min"]),
        ({"members": {"max": 1, "list": ["a", "b"]}}, ["members.list"]),
        ({"members": {"list": ["a", "a"]}}, ["members.list[1].name"]),
        ({"members": {"list": "a"}}, ["members.list"]),
        ({"members": {"list": [{}]}}, ["members.list[0].name"]),
        (
            {"members": {"list": [{"name": "a", "labels": {"x": 1, "": "y"}}]}},
            ["members.list[0].labels.x", "members.list[0].labels."],
        ),
        (
            {"members": {"list": [{"name": "a b"}, {"name": "c", "zone": 1}]}},
            ["members.list[0].name", "members.list[1].zone"],
        ),
        ({"members": ["a"]}, ["members"]),
        ({"placement": "tight"}, ["placement"]),
        ({"lease": {"hold": "8"}}, ["lease.hold"]),
        ({"lease": {"hold": "0s"}}, ["lease.hold"]),
        ({"lease": {"hold": 8}}, ["lease.hold"]),
        (
            {"lease": {"hold": "1m", "acknowledge": "2m", "heartbeat": "60s"}},
            ["lease.acknowledge", "lease.heartbeat"],
        ),
        ({"lease": {"holds": "1m"}}, ["lease.holds"]),
        ({"liveness": {}}, ["liveness.heartbeat"]),
        ({"liveness": {"heartbeat": "never"}}, ["liveness.heartbeat"]),
        ({"liveness": {"heartbeat": "2m", "lost": "0s"}}, ["liveness.lost"]),
        ({"liveness": "2m"}, ["liveness"]),
        ({"priority": {"max": 100}}, ["priority.max"]),
        ({"priority": {"max": -1}}, ["priority.max"]),
        ({"drain": {"limit": "0s"}}, ["drain.limit"]),
        ({"description": "x" * 501}, ["description"]),
        ({"group": ["a"]}, ["group"]),
        ({"description": "a\x00b"}, ["description"]),
    ],
)
def test_each_fault_is_named_by_its_field_with_a_way_out(
    changes: dict[str, Any], fields: list[str]
) -> None:
    found = faults_of(**changes)
    assert [field for field, _, _ in found] == fields
    assert all(message and way_out for _, message, way_out in found)


def test_five_faults_get_five_messages_at_once() -> None:
    found = faults_of(
        name="Lab",
        provider="statik",
        slots=["any", "plna"],
        members={"min": 3, "max": 2},
        lease={"hold": "8"},
    )
    assert [field for field, _, _ in found] == [
        "name",
        "provider",
        "slots[1]",
        "members.min",
        "lease.hold",
    ]
    assert found[1][2] == "Did you mean static?"
    assert found[2][2] == "Did you mean plan?"


@pytest.mark.parametrize("config", [None, [], "lab", 3, {}])
def test_value_that_is_no_configuration_has_a_fault(config: Any) -> None:
    spec, faults = read_pool(config, PROVIDERS)
    assert spec is None
    assert [fault.field for fault in faults] == (["name", "slots"] if config == {} else [""])


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"placement": 16**5000}, "placement"),
        ({"members": {"min": 16**5000}}, "members.min"),
        ({"provider": 16**5000}, "provider"),
        ({16**5000: 1}, "A value with too many digits"),
        ({"group": "\ud800"}, "group"),
        ({"colour\ud800": 1}, "colour\\ud800"),
        ({"scaling": {"policy": "warm", "freeze": [{"from": 16**5000, "to": 1}]}}, None),
    ],
)
def test_value_that_cannot_be_written_is_a_fault(changes: Any, field: str | None) -> None:
    found = read_pool(GOOD | changes, PROVIDERS)[1]
    assert field is None or [f.field for f in found] == [field]
    for fault in found:
        f"{fault.field}{fault.message}{fault.way_out}".encode()


def test_misspelled_field_gets_a_suggestion() -> None:
    assert faults_of(placment="pack") == [("placment", "No such field.", "Did you mean placement?")]
    known = "Known fields: approval, backends, certificates, description, drain"
    assert faults_of(xyz=1)[0][2].startswith(known)


def test_overlapping_ports_of_two_members_on_one_load_balancer_are_refused() -> None:
    slots = {"ports": "30000-30099", "shared": True}
    members = [
        {"name": "a", "external_id": "lb", "ports": "30000-30049"},
        {"name": "b", "external_id": "lb"},
        {"name": "c"},
    ]
    assert [f[0] for f in faults_of(slots=slots, members={"list": members})] == [
        "members.list[1].ports"
    ]


def test_member_without_a_slot_is_refused() -> None:
    slots = {"ports": "30000-30002", "shared": True}
    members = {"list": [{"name": "a", "foreign": [30000, 30001, 30002]}]}
    assert [f[0] for f in faults_of(slots=slots, members=members)] == ["members.list[0]"]


def test_stored_configuration_spells_out_defaults() -> None:
    spec = parse_pool(
        {"name": "lab", "slots": 3, "liveness": {"heartbeat": "120s"}, "lease": {"hold": "90m"}},
        PROVIDERS,
    )
    assert spec.as_stored() == {
        "provider": {"kind": "static"},
        "slots": 3,
        "members": {"min": 0, "max": 10},
        "placement": "pack",
        "priority": {"max": 0},
        "drain": {"limit": "10m"},
        "lease": {"hold": "1h30m"},
        "liveness": {"heartbeat": "2m", "lost": "10m"},
    }


def test_shorthand_is_no_difference() -> None:
    short = {"name": "lab", "slots": 3, "members": {"list": ["a"]}, "lease": {"hold": "60m"}}
    long = {
        "kind": "Pool",
        "name": "lab",
        "provider": {"kind": "static"},
        "slots": 3,
        "members": {"min": 0, "max": 10, "list": [{"name": "a", "labels": {}}]},
        "lease": {"hold": "1h"},
        "placement": "pack",
    }
    assert parse_pool(short, PROVIDERS) == parse_pool(long, PROVIDERS)


def test_parse_pool_raises_all_faults_together() -> None:
    with pytest.raises(Invalid) as caught:
        parse_pool({"name": "Lab", "slots": 0}, option_readers())
    assert len(caught.value.fields) == 2
    assert "2 fields are wrong" in str(caught.value)


words = st.text("a-z0.é\x00 ", max_size=8) | st.sampled_from(
    ["ports", "kind", "static", "any", "plan", "1-9", "2m", "min", "list"]
)
json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | words,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(words, inner, max_size=4),
    max_leaves=12,
)
names = st.sampled_from(
    [
        "kind",
        "name",
        "provider",
        "slots",
        "members",
        "placement",
        "lease",
        "liveness",
        "priority",
        "drain",
        "group",
        "scaling",
        "roll",
    ]
)


@given(st.dictionaries(names, json))
def test_any_configuration_yields_a_round_tripping_spec_or_faults(config: dict[str, Any]) -> None:
    spec, faults = read_pool(config, PROVIDERS)
    assert (spec is None) == bool(faults)
    if spec is not None:
        assert parse_pool(spec.as_config(), PROVIDERS) == spec


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("30s", 30.0),
        ("2m", 120.0),
        ("8h", 28800.0),
        ("1d", 86400.0),
        ("1h30m", 5400.0),
        ("500ms", 0.5),
        ("1.5h", 5400.0),
        (" 1h 30m ", 5400.0),
        ("8", None),
        ("", None),
        ("h", None),
        ("-1s", None),
        ("1w", None),
        ("٣s", None),
        ("1e9s", None),
        ("9" * 50 + "s", None),
    ],
)
def test_durations_are_parsed(text: str, seconds: float | None) -> None:
    assert parse_duration(text) == seconds


@given(st.integers(0, 10**10))
def test_duration_round_trips_through_its_text(milliseconds: int) -> None:
    assert parse_duration(format_duration(milliseconds / 1000)) == pytest.approx(
        milliseconds / 1000
    )


def test_provider_kind_and_port_range_are_fixed_while_members_exist() -> None:
    before = {
        "slots": {"ports": "1-9", "segment": 1},
        "provider": {"kind": "static"},
        "placement": "pack",
    }
    after = {
        "slots": {"ports": "1-19", "segment": 1, "foreign": [3]},
        "provider": {"kind": "azure"},
        "placement": "spread",
    }
    assert list_fixed(before, after, 0) == []
    found = list_fixed(before, after, 2)
    assert [f.field for f in found] == ["provider.kind", "slots.ports"]
    assert found[1].reason == (
        "The port range is fixed while 2 members are there: changing it would move existing claims."
    )


def test_difference_is_reported_field_by_field() -> None:
    assert diff_values({"a": {"b": 1, "c": 2}, "d": 3}, {"a": {"b": 1, "c": 5}, "e": 4}) == [
        FieldChange("a.c", 2, 5),
        FieldChange("d", 3, None),
        FieldChange("e", None, 4),
    ]


@pytest.mark.parametrize("unwilling", [
    {"pool_state": "pending"}, {"pool_state": "deleting"}, {"is_paused": True},
    {"member_state": "offline"}, {"member_state": "creating"}, {"is_cordoned": True},
    {"is_leaving": True},
])  # fmt: skip
def test_slot_is_open_only_if_pool_and_member_allow_it(unwilling: dict[str, Any]) -> None:
    willing: dict[str, Any] = {
        "pool_state": "active", "is_paused": False, "member_state": "ready", "is_cordoned": False,
        "is_leaving": False,
    }  # fmt: skip
    assert offers_slots(**willing)
    assert not offers_slots(**willing | unwilling)


def test_length_of_a_text_counts_the_white_space_around_it() -> None:
    faults = Faults()
    assert read_text({"reason": "12345"}, "", "reason", faults, 5) == "12345"
    assert read_text({"reason": " 1234"}, "", "reason", faults, 5) == "1234"
    faults.raise_if_any()
    read_text({"reason": "12345\x1e"}, "", "reason", faults, 5)
    assert [fault.message for fault in faults.found] == ["6 characters are too many."]
