"""Both searches for a run of free numbers, compared with an exhaustive search."""

import random

import pytest

from slots.members import members_sql
from slots.models import Slot
from tests.claims.helpers import make_pool

pytestmark = pytest.mark.django_db
FIRST, COUNT, MEMBERS = 30000, 24, 3


def first_run(free: list[set[int]], size: int, step: int) -> tuple[int, int] | None:
    """Place of the member and lowest number of the run."""
    runs = (
        (place, number)
        for place, numbers in enumerate(free)
        for number in sorted(numbers)
        if all(number + i * step in numbers for i in range(size))
    )
    return next(runs, None)


@pytest.mark.parametrize("step", [1, 3])
def test_both_searches_find_the_lowest_run_of_the_first_member(step: int) -> None:
    chance = random.Random(step)
    ports = f"{FIRST}-{FIRST + COUNT * step - 1}"
    pool = make_pool(slots={"ports": ports, "segment": step, "shared": True}, members=MEMBERS)
    members = list(pool.members.order_by("position"))
    slots = list(Slot.objects.order_by("pk"))
    for turn in range(25):
        share = chance.choice([0.1, 0.3, 0.6, 0.9])
        taken = {slot.pk for slot in slots if chance.random() < share}
        Slot.objects.update(is_open=True)
        Slot.objects.filter(pk__in=taken).update(is_open=False)
        free = [
            {s.number for s in slots if s.member_id == member.pk and s.pk not in taken}
            for member in members
        ]
        for size in (2, 3, 5, 8):
            found = [
                search(size, pool=pool.pk, labels="{}", lane="port", step=step)
                for search in (members_sql.find_run, members_sql.find_long_run)
            ]
            expected = first_run(free, size, step)
            row = None if expected is None else (members[expected[0]].pk, expected[1])
            assert found == [row, row], (turn, size, free)
