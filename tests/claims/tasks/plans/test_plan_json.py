"""The Terraform JSON of a plan is read into ordered changes with old and new values."""

import json
import sys
from collections.abc import Callable
from dataclasses import asdict
from difflib import SequenceMatcher
from types import FrameType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from claims.tasks.plans import value_diff
from claims.tasks.plans.plan_changes import (
    Counts,
    NotAPlan,
    count_changes,
    groups_of,
    in_group,
    lines_of,
    matching,
)
from claims.tasks.plans.value_diff import (
    DEEPEST,
    MAX_LINE_LENGTH,
    MOST_CHARACTERS,
    MOST_LINES,
    MOST_STEPS,
    diff_values,
)
from slots.agent.executors.plan_summary import summarize_plan
from tests.claims.tasks.plans.helpers import read_plan


def resource(
    address: str, *actions: str, before: Any = None, after: Any = None, **more: Any
) -> dict[str, Any]:
    module = ".".join(address.split(".")[:-2])
    change = {"actions": list(actions), "before": before, "after": after, **more.pop("change", {})}
    return {
        "address": address,
        "module_address": module,
        "type": address.split(".")[-2],
        "change": change,
        **more,
    }


def plan(*resources: dict[str, Any], **more: Any) -> bytes:
    return json.dumps(
        {
            "format_version": "1.2",
            "terraform_version": "1.12.6",
            "resource_changes": list(resources),
            **more,
        }
    ).encode()


def shown(before: Any, after: Any, **more: Any) -> list[str]:
    return [line.shown for line in diff_values(before, after, **more)]


def test_the_riskiest_changes_come_first_and_addresses_sort_naturally() -> None:
    tree = read_plan(
        plan(
            resource("aws_a.x10", "create"),
            resource("aws_a.x2", "create"),
            resource("aws_b.u", "update"),
            resource("aws_c.n", "no-op"),
            resource("aws_d.r", "create", "delete"),
            resource("aws_e.d", "delete"),
            resource("aws_f.q", "read"),
            resource("aws_g.f", "forget"),
        )
    )
    assert [c.address for c in tree.changes] == [
        "aws_e.d", "aws_d.r", "aws_g.f", "aws_b.u", "aws_a.x2", "aws_a.x10", "aws_f.q",
    ]  # fmt: skip
    assert (tree.counts.add, tree.counts.change, tree.counts.destroy, tree.counts.replace) == (
        2,
        1,
        2,
        1,
    )
    assert tree.counts.destroys
    assert [c.address for c in tree.risky] == ["aws_e.d", "aws_d.r", "aws_g.f"]
    assert tree.version == "1.12.6"


ACTIONS = st.lists(
    st.sampled_from(["create", "delete", "update", "forget", "read", "no-op", "later"]), max_size=3
)


@given(st.lists(ACTIONS, max_size=5))
def test_the_counts_of_the_server_equal_those_of_the_agent(actions: list[list[str]]) -> None:
    data = plan(*[resource(f"a.b{n}", *each) for n, each in enumerate(actions)])
    counts = read_plan(data).counts
    assert summarize_plan(json.loads(data)) == asdict(counts)


def test_a_replacement_names_the_attributes_that_force_it() -> None:
    change = {"replace_paths": [["subnet_id"], ["disk", 0, "size"]]}
    tree = read_plan(
        plan(
            resource(
                "aws_nat.main",
                "delete",
                "create",
                before={"subnet_id": "a"},
                after={"subnet_id": "b"},
                change=change,
            )
        )
    )
    assert tree.changes[0].description == "replace, forced by subnet_id, disk[0].size"
    assert [line.shown for line in lines_of(tree.changes[0])] == [
        '~   subnet_id = "a" -> "b"   # forces replacement'
    ]


def test_moved_and_imported_resources_are_listed_and_unchanged_ones_are_not() -> None:
    tree = read_plan(
        plan(
            resource("aws_a.new", "no-op", previous_address="aws_a.old"),
            resource("aws_a.adopted", "no-op", change={"importing": {"id": "i-1"}}),
            resource("aws_a.same", "no-op"),
        )
    )
    assert {c.address: c.description for c in tree.changes} == {
        "aws_a.new": "update in place; moved from aws_a.old",
        "aws_a.adopted": "update in place; imported",
    }


def test_attributes_are_shown_with_old_and_new_values() -> None:
    before = {"id": "i-1", "size": 1, "gone": True, "keep": "x", "list": ["a", "b", "c"]}
    after = {"id": "i-1", "size": 2, "keep": "x", "list": ["a", "c", "d"], "new": None}
    assert shown(before, after, unknown={"arn": True}) == [
        "+   arn  = (known after apply)",
        "-   gone = true",
        '    id   = "i-1"',
        "~   list = [",
        '-       "b"',
        '+       "d"',
        "        # 2 unchanged elements",
        "    ]",
        "~   size = 1 -> 2",
        "    # 1 unchanged attribute",
    ]


def test_sensitive_values_are_masked_and_still_listed() -> None:
    before = {
        "password": "old-one",
        "users": [{"name": "a", "key": "k1"}],
        "same": "s3cret",
        "block": {"token": "t"},
    }
    after = {
        "password": "new-one",
        "users": [{"name": "b", "key": "k2"}],
        "same": "s3cret",
        "block": {"token": "t2"},
    }
    hidden = {"password": True, "users": [{"key": True}], "same": True, "block": True}
    text = "\n".join(shown(before, after, hidden_before=hidden, hidden_after=hidden))
    for secret in ("old-one", "new-one", "k1", "k2", "s3cret", '"t', "token"):
        assert secret not in text
    assert "~   password = (sensitive) -> (sensitive)" in text
    assert "same     = (sensitive)   # may change: sensitive values are not compared" in text
    assert '~           name = "a" -> "b"' in text
    assert shown("x", "y", hidden_after=True) == ["~   everything (sensitive)"]


def test_the_new_value_of_an_attribute_that_becomes_sensitive_is_masked() -> None:
    text = "\n".join(shown({"a": "plain"}, {"a": "secret"}, hidden_after={"a": True}))
    assert "secret" not in text.replace("(sensitive)", "")
    assert '"plain" -> (sensitive)' in text


def test_multiline_texts_and_embedded_json_are_compared_in_parts() -> None:
    one, two = (
        "\n".join(f"l{n}" for n in range(20)),
        "\n".join("L9" if n == 9 else f"l{n}" for n in range(20)),
    )
    lines = shown(
        {"script": one, "policy": '{"a":1,"b":2}'}, {"script": two, "policy": '{"a":1,"b":3}'}
    )
    assert "~   policy = jsonencode {" in lines
    assert "~       b = 2 -> 3" in lines
    assert "-       l9" in lines
    assert "+       L9" in lines
    assert "        # 5 unchanged lines" in lines
    assert len(lines) < 25


def test_long_values_and_huge_resources_are_cut_and_say_so() -> None:
    assert shown({"a": "x"}, {"a": "y" * 1000})[0].endswith('… (700 more characters)"') is True
    lines = shown(None, {f"k{n}": n for n in range(5000)})
    assert len(lines) == MOST_LINES + 1
    assert lines[-1] == "    # 4600 more lines, in the raw plan"


def test_a_plan_of_too_many_resources_is_refused() -> None:
    with pytest.raises(NotAPlan, match="200,000"):
        read_plan(b'{"resource_changes":[' + b"{}," * 200_001 + b"{}]}")


@pytest.mark.parametrize(
    "text", [b"", b"no json", b"[]", b'"x"', b'{"resource_changes": 5}', b"[" * 100_000]
)
def test_data_that_is_no_plan_is_refused(text: bytes) -> None:
    with pytest.raises(NotAPlan):
        read_plan(text)


@pytest.mark.parametrize(
    "entry",
    [
        5,
        None,
        {},
        {"change": 5},
        {"change": {"actions": 5}},
        {"change": {"actions": [5, {}]}},
        {"address": 7, "change": {"actions": ["create"]}},
        {
            "change": {
                "actions": ["update"],
                "before": 5,
                "after": {"a": 1},
                "replace_paths": 7,
                "after_unknown": [1],
                "before_sensitive": "x",
            }
        },
        {
            "change": {
                "actions": ["create", "delete"],
                "replace_paths": [[{}], 5, [None]],
                "after": [1, {"a": [None]}],
            }
        },
    ],
)
def test_malformed_entries_of_an_agent_do_not_raise(entry: Any) -> None:
    for change in read_plan(plan(entry)).changes:
        lines_of(change)


def test_changes_are_grouped_by_module_and_type_and_searched() -> None:
    tree = read_plan(
        plan(
            *(
                resource(f"module.m{m}.aws_{t}.r{n}", "create")
                for m in range(3)
                for t in "ab"
                for n in range(4)
            )
        )
    )
    groups = groups_of(tree.others)
    assert [g.name for g in groups][:3] == ["module.m0.aws_a", "module.m0.aws_b", "module.m1.aws_a"]
    assert groups[0].counts.add == 4
    assert [c.local for c in in_group(tree.others, groups[0].key)] == [
        "aws_a.r0",
        "aws_a.r1",
        "aws_a.r2",
        "aws_a.r3",
    ]
    assert [c.address for c in matching(tree.changes, "m1 r2")] == [
        "module.m1.aws_a.r2",
        "module.m1.aws_b.r2",
    ]


def test_outputs_and_drift_are_listed_apart_from_the_changes() -> None:
    outputs = {
        "url": {"actions": ["update"], "before": "a", "after": "b"},
        "key": {"actions": ["create"], "after": "k", "after_sensitive": True},
    }
    tree = read_plan(
        plan(
            resource_drift=[resource("aws_a.d", "update", before={"n": 1}, after={"n": 2})],
            output_changes=outputs,
        )
    )
    assert tree.counts == Counts()
    assert [[line.shown for line in lines_of(c)] for c in tree.outputs] == [
        ['~   value = "a" -> "b"'],
        ["+   value = (sensitive)"],
    ]
    assert [line.shown for line in lines_of(tree.drift[0])] == ["~   n = 1 -> 2"]


def count_calls(work: Callable[[], object]) -> int:
    calls = 0

    def see(frame: FrameType, event: str, argument: object) -> None:
        nonlocal calls
        calls += event in ("call", "c_call")

    before = sys.getprofile()
    sys.setprofile(see)
    try:
        work()
    finally:
        sys.setprofile(before)
    return calls


def test_work_for_five_thousand_resources_grows_with_their_number() -> None:
    body = {f"attribute_{n}": f"value {n}" for n in range(20)}

    def read(count: int) -> None:
        data = plan(
            *(
                resource(
                    f"module.m{n % 40}.aws_thing.r{n}",
                    "update",
                    before=body,
                    after=body | {"attribute_3": "new"},
                )
                for n in range(count)
            )
        )
        tree = read_plan(data)
        assert count_changes(tree.changes).change == count
        assert len(groups_of(tree.others)) == 40

    assert count_calls(lambda: read(5000)) < 11 * count_calls(lambda: read(500))


def test_the_text_of_one_resource_is_limited_in_total() -> None:
    """Also where each of its values is within its own limits."""
    many = {f"key-{n}-{'k' * 2000}": "v" * 290 for n in range(300)}
    lines = diff_values(dict.fromkeys(many, ""), many)
    assert sum(len(line.text) for line in lines) < MOST_CHARACTERS + 2 * MAX_LINE_LENGTH
    assert "more lines, in the raw plan" in lines[-1].text


def test_comparing_one_resource_takes_a_limited_number_of_steps(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    compared = []

    class Matcher(SequenceMatcher[Any]):
        def __init__(self, junk: Any, a: Any, b: Any, autojunk: bool) -> None:
            compared.append(min(len(a), len(b)) * sum(b.count(each) for each in a))
            super().__init__(junk, a, b, autojunk)

    monkeypatch.setattr(value_diff, "SequenceMatcher", Matcher)
    alike = ["\n".join("x" if n % 2 else f"{side}{n}" for n in range(100)) for side in "ab"]
    lines = diff_values(
        {f"k{n:03}": alike[0] for n in range(300)}, {f"k{n:03}": alike[1] for n in range(300)}
    )
    assert compared and sum(compared) <= MOST_STEPS
    assert len(lines) == MOST_LINES + 1


def test_texts_too_long_to_compare_keep_their_equal_ends(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(value_diff, "MOST_STEPS", 0)
    assert shown({"t": "a\nb\nc\nd"}, {"t": "a\nB\nC\nd"}) == [
        "~   t = <<EOT", "        a", "-       b", "-       c", "+       B", "+       C",
        "        d", "    EOT",
    ]  # fmt: skip


def test_deeply_nested_values_are_left_out() -> None:
    one: Any = "old"
    two: Any = "new"
    for _ in range(100):
        one, two = {"a": one}, {"a": two}
    lines = diff_values(one, two)
    assert len(lines) < 2 * DEEPEST + 2 and any("nested too deeply" in line.text for line in lines)
