"""The database refuses each of nine buggy allocators, and its tables stay consistent.

Each allocator is played a second time without the rules that stop it. It must then do harm, or
the first half would be no proof.
"""

from collections.abc import Callable
from dataclasses import dataclass

import pytest

from tests.database import buggy_allocators, helpers

AGREEMENT = ("slot_agrees", "claim_agrees")


@dataclass(frozen=True)
class Case:
    bug: Callable[[buggy_allocators.Desk], None]
    code: str  # of the refusal
    stopped_by: tuple[str, ...]  # taken away together, it does harm


CASES = [
    Case(buggy_allocators.no_lock, "BR001", ("slot_not_stolen", "slot_agrees")),
    Case(buggy_allocators.stale_slot_save, "BR001", ("slot_generation_rises", *AGREEMENT)),
    Case(
        buggy_allocators.stale_claim_save,
        "BR001",
        ("claim_move", "claim_generation_rises", "claim_agrees"),
    ),
    Case(buggy_allocators.double_release, "BR002", ("slot_agrees",)),
    Case(buggy_allocators.claim_not_locked, "23505", ("slot_seat", *AGREEMENT)),
    Case(buggy_allocators.old_generation, "23514", ("claim_named",)),
    Case(buggy_allocators.target_taken_twice, "BR001", ("slot_not_stolen", "slot_agrees")),
    Case(buggy_allocators.partial_hold, "BR002", AGREEMENT),
    Case(buggy_allocators.finished_but_held, "BR002", ("claim_agrees",)),
]


def left_broken(table: buggy_allocators.Table) -> int:
    with helpers.connect() as c:
        return sum(helpers.violations(c).values()) + len(table.wrongly_ended)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.bug.__name__)
def test_buggy_allocator_is_refused(case: Case, tables: None) -> None:
    table = buggy_allocators.play(case.bug)
    assert left_broken(table) == 0
    assert table.refused[case.code] > 0
    assert not table.disturbed, "the correct code beside it was refused, or lost what it held"


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.bug.__name__)
def test_buggy_allocator_does_harm_without_its_rules(case: Case, tables: None) -> None:
    with helpers.without(*case.stopped_by):
        assert left_broken(buggy_allocators.play(case.bug)) > 0


def test_all_rules_are_restored_after_the_trials(tables: None) -> None:
    with helpers.connect() as c:
        for rule in {rule for case in CASES for rule in case.stopped_by}:
            assert helpers.exists(c, rule), rule
