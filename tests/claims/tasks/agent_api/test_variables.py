"""Variables in the run form are read as JSON or HCL; each fault names its line."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from claims.tasks.pages.variables import read_variables


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("eu-1", "eu-1"), ("a=b c, d", "a=b c, d"), ("", ""), ("3", 3), ("-2.5", -2.5),
        ("true", True), ("false", False), ("null", None), ('"3"', "3"), ('"true"', "true"),
        ('"a \\"b\\" \\n"', 'a "b" \n'), ("007", "007"), ("1.2.3", "1.2.3"),
        ("10.0.0.0/8", "10.0.0.0/8"), ("123456789012345678901", 123456789012345678901), ("[]", []),
        ("[1, true, \"a\"]", [1, True, "a"]), ("[1, 2,]", [1, 2]), ("{}", {}),
        ('{"a": 1, "b": [2]}', {"a": 1, "b": [2]}),
        ("{a = 1, b = {c = \"d\"}}", {"a": 1, "b": {"c": "d"}}),
        ("{\n  a = 1\n  b = [\n    2, # two\n    3,\n  ]\n}", {"a": 1, "b": [2, 3]}),
        ('"x" # why', "x"),
    ],
)  # fmt: skip
def test_a_value_is_read_with_its_type(text: str, value: Any) -> None:
    found, faults = read_variables(f"before=1\nname = {text}\n\n# a comment\nafter=2\n")
    assert not faults and found == {"before": 1, "name": value, "after": 2}
    assert type(found["name"]) is type(value)


@pytest.mark.parametrize(
    ("text", "line", "words"),
    [
        ("a=1\nb", 2, "not name=value"),
        ("a=1\n=2", 2, "not name=value"),
        ("a=1\na=2", 2, "twice"),
        ("v=1.30", 1, "lose digits"),
        ("v=1e5", 1, "lose digits"),
        ("v=[eu-1]", 1, "neither a number"),
        ("a=1\nv=[1, 2", 2, "not closed"),
        ("v={a = }", 1, "missing"),
        ("v={a 1}", 1, "has no value"),
        ("v={a = 1, a = 2}", 1, "twice in an object"),
        ("v=[1 2]", 1, "comma"),
        ('v="open', 1, "not closed"),
        ('v="a" b', 1, "Unexpected text"),
        ("v=[1]]", 1, "Unexpected text"),
        ("v=[,]", 1, "missing"),
        ('v="\\q"', 1, "escape"),
        ("v=" + "[" * 60, 1, "nested too deep"),
        ("v=[1.30]", 1, "lose digits"),
    ],
)
def test_a_fault_names_its_line_and_a_way_out(text: str, line: int, words: str) -> None:
    faults = read_variables(text)[1]
    assert faults and words in faults[0].message and faults[0].way_out, [
        fault.message for fault in faults
    ]
    assert faults[0].line == line


def test_every_faulty_line_is_reported() -> None:
    found, faults = read_variables("a\nb=2\nc=[x]\nd=4")
    assert found == {"b": 2, "d": 4} and [fault.line for fault in faults] == [1, 3]


PLAIN = st.none() | st.booleans() | st.integers() | st.text()
JSON = st.recursive(
    PLAIN,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=20,
)


@given(st.lists(JSON, max_size=5) | st.dictionaries(st.text(), JSON, max_size=5) | st.text())
def test_json_values_are_read_unchanged(value: Any) -> None:
    for indent in (None, 2):
        assert read_variables(f"x = {json.dumps(value, indent=indent)}\ny=1") == (
            {"x": value, "y": 1},
            [],
        )


@given(st.text())
def test_any_text_is_read_or_refused_with_faults(text: str) -> None:
    found, faults = read_variables(text)
    assert all(fault.line >= 1 and fault.way_out for fault in faults) and isinstance(found, dict)
