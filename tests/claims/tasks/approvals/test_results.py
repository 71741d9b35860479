"""The result that an agent reports is read strictly, and a lost or failed task gets its fate."""

from typing import Any

import pytest

from claims.lifecycle.policy import Fate, back_off, fate_of_lost
from claims.tasks.task_result import LONGEST_REASON, LogTotals, parse_result
from project.kernel.errors import Invalid

DIGEST = "0a" * 32


def test_a_complete_result_is_read_and_unknown_fields_are_dropped() -> None:
    found = parse_result(
        {
            "outcome": "planned", "exit_code": 2, "digest": DIGEST,
            "summary": {"add": 1, "destroy": 2, "drift": True, "odd": 5},
            "facts": {"binary": "tofu", "version": "1.12.6", "odd": "x"},
            "log": {"next": 3, "bytes": 100, "lines": 7, "left_out": 1}, "odd": 1,
        }
    )  # fmt: skip
    assert (found.outcome, found.exit_code, found.digest) == ("planned", 2, bytes.fromhex(DIGEST))
    assert found.summary == {"add": 1, "change": 0, "destroy": 2, "replace": 0, "drift": True}
    assert (found.facts, found.log) == (
        {"binary": "tofu", "version": "1.12.6"},
        LogTotals(3, 100, 7, 1),
    )


def test_a_long_reason_is_cut_and_nul_characters_are_removed() -> None:
    found = parse_result(
        {"outcome": "failed", "code": "exit_code", "reason": "x\x00" * 3000 + "\ud800"}
    )
    assert len(found.reason) == LONGEST_REASON
    assert "\x00" not in found.reason
    assert found.explanation.startswith("exit_code: xxx")
    assert parse_result({"outcome": "failed", "reason": 7}).explanation == ""


@pytest.mark.parametrize(
    ("body", "fields"),
    [
        ({}, ["outcome"]),
        ([], [""]),
        ({"outcome": "done"}, ["outcome"]),
        ({"outcome": "planned"}, ["digest"]),
        ({"outcome": "planned", "digest": "0A" * 32}, ["digest"]),
        ({"outcome": "failed", "code": "Not A Code", "exit_code": "1"}, ["exit_code", "code"]),
        (
            {"outcome": "failed", "summary": [], "facts": {"binary": 5}, "log": {"next": -1}},
            ["summary", "facts.binary", "log.next"],
        ),
        (
            {"outcome": "failed", "summary": {"add": -1, "drift": "yes"}},
            ["summary.add", "summary.drift"],
        ),
    ],
)
def test_every_fault_of_a_result_is_named(body: Any, fields: list[str]) -> None:
    with pytest.raises(Invalid) as refused:
        parse_result(body)
    assert sorted({fault.field for fault in refused.value.fields}) == sorted(fields)


FATES: list[tuple[dict[str, Any], tuple[Any, ...]]] = [
    ({"step": "", "is_retried": False}, ("ended", "lost", 0.0, None)),
    ({"step": "", "is_retried": True}, ("waiting", "", 0.0, None)),
    ({"step": "plan", "is_retried": True, "has_task": True}, ("blocked", "", 5.0, None)),
    (
        {"step": "plan", "is_retried": True, "has_task": True, "attempts": 3},
        ("blocked", "", 40.0, None),
    ),
    (
        {"step": "plan", "is_retried": True, "has_task": True, "attempts": 4},
        ("ended", "lost", 0.0, None),
    ),
    ({"step": "plan", "is_retried": True, "is_reserved": True}, ("parked", "", 0.0, None)),
    ({"step": "apply", "is_retried": True}, ("ended", "lost", 0.0, None)),
    (
        {"step": "apply", "is_retried": True, "is_started": False, "has_task": True, "attempts": 9},
        ("waiting", "", 0.0, 0),
    ),
]


@pytest.mark.parametrize(("of", "fate"), FATES)
def test_a_lost_claim_gets_its_fate(of: dict[str, Any], fate: tuple[Any, ...]) -> None:
    found: Fate = fate_of_lost(**of)
    assert (found.to, found.outcome, found.wait, found.rank) == fate
    assert found.reason


def test_the_back_off_doubles_up_to_a_minute() -> None:
    assert [back_off(n) for n in range(8)] == [5, 5, 10, 20, 40, 60, 60, 60]
