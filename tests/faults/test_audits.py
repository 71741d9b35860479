"""Each audit of the fault tests and of the campaign finds its fault. No stack starts."""

from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess
from types import SimpleNamespace
from typing import Any, cast

import pytest

from tests.database.helpers import AUDIT
from tests.end_to_end.stack import Stack
from tests.faults import checks
from tests.faults.authors import Diary
from tests.faults.campaign.scenarios.clocks import ClockOff
from tests.faults.campaign.scenarios.kills_scaling import LIVE, MOST, KillAtScaleOut, KillScaling
from tests.faults.campaign.scenarios.kills_tasks import KillAtApply
from tests.faults.campaign.site import Site
from tests.faults.campaign.tasks import Plans
from tests.faults.load import Caller, Ledger, Promise

Row = tuple[Any, ...]
IDLE = (4, "idle", 1, 2)  # slot, state, holder, generation


def make_stack(rows: Callable[[str], list[Row]], doctor: int = 0) -> Stack:
    """A stack of rows alone."""
    manage = lambda *words: CompletedProcess(words, doctor, "a finding", "")  # noqa: E731
    return cast(Stack, SimpleNamespace(execute=rows, manage=manage, heard=""))


def make_claim(number: int, *slots: int, generation: int = 1) -> dict[str, Any]:
    held = [{"id": slot} for slot in slots]
    return {"id": number, "generation": generation, "slots": held, "pool": "busy"}


def hold(ledger: Ledger, key: str, claim: dict[str, Any]) -> None:
    ledger.promise(key, claim)
    ledger.hold(key, claim, 1.0)


# -- the ledger of callers -------------------------------------------------------------------------


def test_slot_of_two_holders_is_found() -> None:
    ledger = Ledger()
    hold(ledger, "first", make_claim(1, 7, 8))
    ledger.let_go("first", make_claim(1, 7))
    hold(ledger, "second", make_claim(2, 7))
    assert ledger.broken == []
    hold(ledger, "third", make_claim(3, 8))
    assert ledger.broken == ["slot 8 was given to third while first holds it"]


def test_key_of_two_claims_is_found() -> None:
    ledger = Ledger()
    ledger.promise("first", make_claim(1))
    ledger.promise("first", make_claim(2))
    assert ledger.broken == ["the key first stands for claim 1 and for 2"]


# -- rows ------------------------------------------------------------------------------------------
PROMISES = {
    "bound": Promise(1, generation=3, is_acknowledged=True, is_kept=True),
    "released": Promise(2, generation=5, is_acknowledged=True, is_released=True),
}
KEPT: list[Row] = [
    (1, "bound", "bound", None, 3, True),
    (2, "released", "ended", "released", 5, True),
]


def check_promises(*rows: Row) -> None:
    checks.check_promises(make_stack(lambda query: list(rows)), Ledger(promises=PROMISES))


def test_kept_promises_are_no_finding() -> None:
    check_promises(*KEPT)


@pytest.mark.parametrize(
    "row",
    [
        (9, "bound", "bound", None, 3, True),
        (1, "other key", "bound", None, 3, True),
        (1, "bound", "bound", None, 4, True),
        (1, "bound", "bound", None, 3, False),
        (1, "bound", "waiting", None, 3, True),
    ],
    ids=["no row", "key", "generation", "not acknowledged", "not kept"],
)
def test_broken_promise_is_found(row: Row) -> None:
    with pytest.raises(AssertionError, match="bound"):
        check_promises(row, KEPT[1])


@pytest.mark.parametrize("end", [("ended", "expired"), ("bound", None)])
def test_broken_promise_of_a_release_is_found(end: Row) -> None:
    with pytest.raises(AssertionError, match="released"):
        check_promises(KEPT[0], (2, "released", *end, 5, True))


@pytest.mark.parametrize("name", AUDIT)
def test_violated_rule_about_holders_is_found(name: str) -> None:
    def count(query: str) -> list[Row]:
        return [(int(query == AUDIT[name]),)]

    assert checks.audit(make_stack(count)) == {name: 1}


def test_finding_of_the_doctor_is_found() -> None:
    checks.check_doctor(make_stack(lambda query: []))
    with pytest.raises(AssertionError, match="a finding"):
        checks.check_doctor(make_stack(lambda query: [], doctor=1))


# -- outside ---------------------------------------------------------------------------------------
@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Slot 4 of member 1 is in use outside by generation 2 of claim 1."""
    monkeypatch.setenv("BERTH_TEST_WORLD", str(tmp_path / "world"))
    (tmp_path / "world" / "1").mkdir(parents=True)
    (tmp_path / "world" / "1" / "4").write_text("1 2")
    return tmp_path / "world"


@pytest.mark.usefixtures("world")
def test_idle_slot_that_is_in_use_outside_is_found() -> None:
    checks.check_world(make_stack(lambda query: [(4, "draining", 1, 2)]))
    with pytest.raises(AssertionError, match="slot 4 is idle, and outside it is in use by 1 2"):
        checks.check_world(make_stack(lambda query: [IDLE]))


@pytest.mark.usefixtures("world")
@pytest.mark.parametrize("holder", [(8, 2), (1, 3)])
def test_slot_in_use_outside_by_an_earlier_holder_is_found(holder: Row) -> None:
    with pytest.raises(AssertionError, match="is 1 2 outside"):
        checks.check_world(make_stack(lambda query: [(4, "draining", *holder)]))


# -- applies ---------------------------------------------------------------------------------------
def write_applied(target: Path, *claims: int) -> Path:
    """Each apply begins with a line of its claim and generation."""
    (target / "quay").mkdir(exist_ok=True)
    (target / "quay" / "applied.log").write_text("".join(f"{claim} 1\n" for claim in claims))
    return target


def test_claim_that_is_applied_twice_is_found(tmp_path: Path) -> None:
    assert checks.applied_twice(write_applied(tmp_path, 1, 2)) == {}
    assert checks.applied_twice(write_applied(tmp_path, 1, 2, 1)) == {1: 2}


APPLIED, RESERVED = (1, "ended", "applied"), (2, "reserved", None)


@pytest.mark.parametrize(
    ("rows", "text"),
    [
        ([APPLIED, (2, "bound", None)], "have not ended: {2"),
        ([(1, "ended", "lost"), RESERVED], "not end as their authors were told: {1"),
        ([APPLIED, (3, "ended", "applied")], r"rows without an author: \[2, 3\]"),
    ],
)
def test_claim_that_did_not_end_as_it_was_told_is_found(rows: list[Row], text: str) -> None:
    diary = Diary(asked_at={1: 0.0, 2: 0.0}, outcomes={1: "applied"})
    checks.check_ends(make_stack(lambda query: [APPLIED, RESERVED]), diary)
    with pytest.raises(AssertionError, match=text):
        checks.check_ends(make_stack(lambda query: rows), diary)


@pytest.mark.parametrize(
    ("begun", "approved", "failed"),
    [((), (1,), ()), ((1, 1), (1,), ()), ((1, 2), (1,), ()), ((1,), (1,), ((1, 1, "no disk"),))],
    ids=["not begun", "twice", "without approval", "failed"],
)
def test_wrong_apply_is_found(
    tmp_path: Path, begun: tuple[int, ...], approved: tuple[int, ...], failed: tuple[Row, ...]
) -> None:
    diary = Diary(outcomes={1: "applied"})

    def stack_of(failed: tuple[Row, ...]) -> Stack:
        return make_stack(
            lambda query: list(failed) if "claims_run" in query else [(n,) for n in approved]
        )

    checks.check_pages(stack_of(()), diary, write_applied(tmp_path, 1))
    with pytest.raises(AssertionError):
        checks.check_pages(stack_of(failed), diary, write_applied(tmp_path, *begun))


# -- scenarios -------------------------------------------------------------------------------------
def make_site(stack: Stack) -> Site:
    site = Site.__new__(Site)  # without the start of a stack
    site.stack, site.ledger, site.callers, site.traps = stack, Ledger(), [], ()
    return site


def make_failed_caller() -> Caller:
    made = Caller("c", 0, "", "busy", Ledger())
    made.error = OSError("gone")
    made.join = lambda timeout=None: None  # type: ignore[method-assign]
    return made


def violate(query: str) -> list[Row]:
    if query in AUDIT.values():
        return [(1,)]
    return [IDLE] if "slots_slot" in query else []


@pytest.mark.usefixtures("world")
def test_site_runs_all_audits_at_the_end() -> None:
    site = make_site(make_stack(violate, doctor=1))
    site.ledger.promises["lost"] = Promise(1)
    site.ledger.break_promise("a caller was refused")
    site.callers.append(make_failed_caller())
    found = "\n".join(site.verify())
    for text in ("a caller was refused", *AUDIT, "OSError('gone')", "lost", "slot 4 is idle",
                 "a finding"):  # fmt: skip
        assert text in found


@pytest.fixture
def scaling(tmp_path: Path) -> KillScaling:
    """Members 1 and 2, of which 1 is busy."""
    made = KillAtScaleOut(tmp_path, 1)
    made.kept = [1]
    return made


def find_in(scaling: KillScaling, *live: int) -> list[str]:
    rows = lambda query: [(n,) for n in live] if query == LIVE else [(0,)]  # noqa: E731
    scaling.site = make_site(make_stack(rows))
    return scaling.find_broken()


def test_removed_busy_member_is_found(scaling: KillScaling) -> None:
    assert find_in(scaling, 1, 2) == []
    assert find_in(scaling, 2) == ["the busy member [1] was removed: [2]"]


def test_member_above_the_maximum_is_found(scaling: KillScaling) -> None:
    live = range(1, MOST + 2)
    assert find_in(scaling, *live) == [f"{MOST + 1} members, {MOST} at most"]


def test_task_scenario_finds_broken_promises_second_applies_and_rows(tmp_path: Path) -> None:
    made = KillAtApply(tmp_path, 1)
    made.site, made.diary, made.authors = make_site(make_stack(violate)), Diary(), []
    made.target = write_applied(tmp_path, 6, 6)
    made.diary.break_promise("claim 1 ended expired")
    assert made.find_broken() == [
        "claim 1 ended expired",
        "claim 6 was applied 2 times",
        *(f"{name}: 1" for name in AUDIT),
    ]


@pytest.mark.parametrize(
    ("row", "text"),
    [
        ((5, "ended", "planned", 1), ""),
        ((5, "bound", None, 1), "claim 5: bound None, begun 1 times"),
        ((5, "ended", "planned", 2), "claim 5: ended planned, begun 2 times"),
        (None, "acknowledged claims [5] have no row"),
    ],
)
def test_plan_that_went_wrong_is_found(row: Row | None, text: str) -> None:
    def answer(query: str) -> list[Row]:
        if "claims_run" not in query:
            return [(0,)]
        return [row] if row else []

    plans = Plans(make_site(make_stack(answer)))
    plans.made = [5]
    assert plans.find_broken() == ([text] if text else [])


def test_clock_scenario_finds_expired_claims_and_silent_members(tmp_path: Path) -> None:
    made = ClockOff(tmp_path, 1)
    made.site = make_site(make_stack(lambda query: [("claim 3 ended expired",)]))
    assert made.find_lost() == ["claim 3 ended expired"]
