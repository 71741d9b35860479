"""Each race goes wrong once its guard is taken out of the statement, so the race test can fail."""

from dataclasses import dataclass

import pytest

from tests.database import helpers, test_slot_races, test_task_races
from tests.database.race import ORDERS, Race

RACES = {race.name: race for race in test_slot_races.RACES + test_task_races.RACES}


@dataclass(frozen=True)
class Mutant:
    race: str
    statement: str
    guard: str
    instead: str


MUTANTS = [
    Mutant("promote, lock", "lock_workspace", "FOR NO KEY UPDATE", ""),
    Mutant("create, create", "lock_workspace", "FOR NO KEY UPDATE", ""),
    Mutant("approve, expire: too late", "resume", "AND expires_at > now()", ""),
    Mutant("approve, expire: in time", "expire", "AND expires_at <= now()", ""),
    Mutant("acknowledge, too late", "acknowledge", "> now())", "IS NOT NULL)"),
    Mutant("acknowledge, finalize", "lock_due_claim", "FOR UPDATE SKIP LOCKED", ""),
    Mutant("batch, batch", "bind_batch", "FOR NO KEY UPDATE SKIP LOCKED", ""),
    Mutant("two allocators, three slots each", "find_any", "FOR NO KEY UPDATE SKIP LOCKED", ""),
    Mutant("approve, expire while parked: too late", "unpark", "AND expires_at > now()", ""),
    Mutant("two ask for more members", "request_scale", "AND scale_requested_at IS NULL", ""),
    Mutant("bind, scale-in", "is_member_empty", "NOT EXISTS", "true OR NOT EXISTS"),
]


def wrong_ways(race: Race) -> list[str]:
    found = []
    for order in ORDERS:
        try:
            race.play(order)
        except AssertionError:
            found.append(order)
        except Exception as error:
            # A rule of the database stopped it: the guard was needed as well.
            found.append(f"{order}: {error}")
    return found


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda m: f"{m.race} without {m.guard}")
def test_race_goes_wrong_without_its_guard(
    mutant: Mutant, tables: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = next(s for s in (helpers.SLOTS, helpers.CLAIMS) if mutant.statement in s.texts)
    text = home.texts[mutant.statement]
    assert mutant.guard in text, "the statement has changed: name its guard anew"
    monkeypatch.setitem(home.texts, mutant.statement, text.replace(mutant.guard, mutant.instead))
    assert wrong_ways(RACES[mutant.race])
