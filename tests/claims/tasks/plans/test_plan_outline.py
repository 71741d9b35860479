"""The outline of a plan keeps its changes and leaves out what exceeds its limits."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from claims.tasks.plans import plan_outline
from claims.tasks.plans.json_scan import Scan
from claims.tasks.plans.plan_changes import lines_of
from claims.tasks.plans.plan_outline import NotAPlan, answer_outline, read_head
from tests.claims.tasks.plans.helpers import read_plan, resource

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3)
    ),
    max_leaves=12,
)
BROKEN = [
    '{"a" 1}', '{"a":1,}', "{,}", '{"a":1 "b":2}', "{1:2}", '{"a":1', '{"a":[1,]}', '{"a":[1 2]}',
    '{"resource_changes":[{} {}]}', '{"resource_changes":[1,]}', '{"resource_changes":[', "{} {}",
    "", " ", "nul", '{"a":"\x01"}', '{"resource_changes":[{"address":"\xff"}]}',
]  # fmt: skip


def plan(*resources: Any, **more: Any) -> bytes:
    return json.dumps({"resource_changes": list(resources), **more}).encode()


@given(st.dictionaries(st.text(max_size=4), VALUES, max_size=4), st.booleans(), st.booleans())
def test_the_scanner_finds_what_the_json_decoder_finds(
    value: dict[str, Any], is_ascii: bool, is_wide: bool
) -> None:
    data = json.dumps(value, ensure_ascii=is_ascii, indent=2 if is_wide else None).encode(
        "utf-8", "surrogatepass"
    )
    scan = Scan(data)
    found = {key: scan.read(at) for key, at in scan.members(scan.begin())}
    scan.check_end(scan.begin())
    assert found == json.loads(data)
    for inner in (each for each in value.values() if isinstance(each, list)):
        scan = Scan(f" {json.dumps(inner)}".encode())
        assert [scan.read(at) for at in scan.items(1)] == inner


@pytest.mark.parametrize("text", BROKEN)
def test_broken_json_is_refused_wherever_it_breaks(text: str) -> None:
    with pytest.raises(NotAPlan):
        answer_outline(text.encode("latin-1"))


def test_a_repeated_top_level_key_is_refused() -> None:
    """JSON readers differ: some take the first value, some the last."""
    with pytest.raises(NotAPlan, match="names resource_changes twice"):
        answer_outline(b'{"resource_changes": [], "resource_changes": []}')


def test_a_resource_that_is_too_large_keeps_its_action_without_attributes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(plan_outline, "LARGE", 2000)
    monkeypatch.setattr(plan_outline, "SHORT", 500)
    large = resource(
        "aws_a.b", "delete", "create", before={"x": "y" * 3000}, change={"replace_paths": [["x"]]}
    )
    tree = read_plan(plan(large, resource("aws_a.c", "update", before={"n": 1}, after={"n": 2})))
    assert [change.description for change in tree.changes] == [
        "replace, forced by x",
        "update in place",
    ]
    assert (tree.counts.replace, tree.counts.change) == (1, 1)
    (line,) = lines_of(tree.changes[0])
    assert "are too many to be shown; see the raw plan" in line.text
    assert [line.shown for line in lines_of(tree.changes[1])] == ["~   n = 1 -> 2"]


def test_attributes_beyond_the_limit_of_an_outline_are_left_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(plan_outline, "BLOCK", 100)
    monkeypatch.setattr(plan_outline, "MOST_BODIES", 300)
    data = plan(
        *(resource(f"aws_a.b{n}", "create", after={"text": f"{n} {'xyz' * 20}"}) for n in range(50))
    )
    assert len(answer_outline(data)) < 3000
    tree = read_plan(data)
    shown = [
        len(lines_of(change)) == 1 and "too many" not in lines_of(change)[0].text
        for change in tree.changes
    ]
    assert shown[0] and not shown[-1] and len(tree.changes) == 50


def test_a_plan_of_more_changes_than_the_limit_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(plan_outline, "MOST_LISTED", 2)
    few = plan(
        *(resource(f"aws_a.b{n}", "no-op") for n in range(9)),
        resource("aws_a.x", "create"),
        resource("aws_a.y", "create"),
    )
    assert read_head(answer_outline(few))["resources"] == 11
    with pytest.raises(NotAPlan, match="more than 2 resources"):
        answer_outline(plan(*(resource(f"aws_a.b{n}", "create") for n in range(3))))


def test_attributes_of_every_change_are_read_back_from_their_blocks(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(plan_outline, "BLOCK", 300)
    tree = read_plan(
        plan(
            *(
                resource(f"aws_a.b{n}", "create", after={"number": n, "text": "é✓"})
                for n in range(40)
            )
        )
    )
    for change in tree.changes:
        assert f"number = {change.address.removeprefix('aws_a.b')}" in [
            line.text for line in lines_of(change)
        ]
    assert len({change.block for change in tree.changes}) > 5
