"""A member that fails in the finalizer holds up no other."""

from typing import Any

import pytest
from django.db import OperationalError

from pools.lifecycle.services import create_pool
from pools.models import Member
from project.kernel.controllers.periodic import list_chores
from slots.members import chores
from slots.members.chores import finish_leaving_members
from slots.members.services import remove_member
from tests.slots.helpers import give_back, hold

pytestmark = pytest.mark.django_db


class Poison(Exception):
    pass


def leaving(*names: str) -> list[int]:
    pool = create_pool({"name": "lab", "slots": 1, "members": {"list": list(names)}})
    held = [hold(pool) for _ in names]
    ids = list(Member.objects.order_by("id").values_list("pk", flat=True))
    for member_id in ids:
        remove_member(member_id=member_id, reason="sold")
    for claim, _, generation in held:
        give_back(claim, generation)
    return ids


def test_failing_member_is_skipped_and_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    first, *others = leaving("a", "b", "c")
    settle = chores.finish_leaving

    def stumble(member_id: int) -> Any:
        if member_id == first:
            raise Poison("bad row")
        return settle(member_id)

    monkeypatch.setattr(chores, "finish_leaving", stumble)
    with pytest.raises(Poison):
        finish_leaving_members()
    assert set(Member.objects.filter(state="gone").values_list("pk", flat=True)) == set(others)


def test_missing_database_ends_the_step_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    leaving("a", "b")
    asked: list[int] = []

    def away(member_id: int) -> Any:
        asked.append(member_id)
        raise OperationalError("server closed the connection")

    monkeypatch.setattr(chores, "finish_leaving", away)
    with pytest.raises(OperationalError):
        finish_leaving_members()
    assert len(asked) == 1


def test_idle_steps_report_that_they_did_no_work() -> None:
    steps = [each.step for each in list_chores() if each.step.__module__.startswith("slots.")]
    assert [step() for step in steps] == [False] * 9
