"""A registered kind of claim takes part in parsing, creation and display."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pytest

from claims import kinds
from claims.allocation.bulk import create_claims
from claims.allocation.create import create_claim
from claims.allocation.requests.claim_request import read_claim
from claims.allocation.selectors import view_claim
from claims.kinds import Attach, ClaimKind, ClaimPool, NewClaim, ShownClaim
from claims.models import Claim
from pools.config.parsing import Faults
from project.kernel.errors import BerthError, Conflict, FieldError, Invalid
from slots.models import Slot
from tests.claims.helpers import make_pool, wish


@dataclass(frozen=True)
class Seats:
    count: int

    def digest(self) -> str:
        return str(self.count)


class SeatKind(ClaimKind):
    field = "seats"
    schema = {"type": "integer"}
    template = "claims/lifecycle/claim_page.html"

    def __init__(self) -> None:
        self.attached: dict[int, int] = {}
        self.shown: list[Any] = []

    def read(self, value: object, claim: NewClaim, faults: Faults) -> Seats | None:
        if not isinstance(value, int):
            faults.add(self.field, "It is not a number.", "Write a number.")
            return None
        return Seats(value)

    def is_missing(self, claim: NewClaim, pool: ClaimPool | None) -> bool:
        return bool(claim.task) and claim.work is None and pool is not None and pool.name == "hall"

    def prepare(self, claim: NewClaim, pool: ClaimPool | None) -> Attach | None:
        if self.is_missing(claim, pool):
            raise Invalid(fields=[FieldError(self.field, "It is missing.", "Name it.")])
        seats = claim.work
        if not isinstance(seats, Seats):
            return None
        return lambda claim_id: self.attached.update({claim_id: seats.count})

    def owns(self, claim_id: int) -> bool:
        return claim_id in self.attached

    def display(self, claims: Sequence[ShownClaim]) -> None:
        self.shown += claims


@pytest.fixture
def seats(monkeypatch: pytest.MonkeyPatch) -> SeatKind:
    monkeypatch.setattr(kinds, "_kinds", list(kinds.list_kinds()))
    kind = SeatKind()
    kinds.register_kind(kind)
    return kind


def test_a_kind_reads_its_field_and_adds_its_faults_to_the_other_faults(seats: SeatKind) -> None:
    request, faults = read_claim({"pool": "lab", "seats": 3}, requested_by="ana")
    assert request is not None and request.work == Seats(3) and faults == []
    request, faults = read_claim({"size": 0, "seats": "many"}, requested_by="ana")
    assert request is None
    assert {fault.field for fault in faults} == {"pool", "size", "seats"}


def test_an_unregistered_field_is_unknown() -> None:
    assert [f.field for f in read_claim({"pool": "lab", "seats": 3}, requested_by="ana")[1]] == [
        "seats"
    ]


def test_a_claim_of_two_kinds_is_refused(seats: SeatKind) -> None:
    body = {
        "pool": "lab",
        "task": "plan",
        "seats": 3,
        "run": {"executor": "command", "commands": {"plan": "make plan"}},
    }
    request, faults = read_claim(body, requested_by="ana")
    assert request is None and [fault.field for fault in faults] == ["seats"]


def test_two_kinds_cannot_own_one_field(seats: SeatKind) -> None:
    with pytest.raises(ValueError, match="seats"):
        kinds.register_kind(SeatKind())


@pytest.mark.django_db
def test_a_kind_attaches_its_work_and_completes_the_view(seats: SeatKind) -> None:
    make_pool("lab", slots=4)
    slot = Slot.objects.order_by("pk").last()
    assert slot is not None
    bound = create_claim(wish("lab", seats=1))
    waiting = create_claim(wish("later", kind="slot", seats=2))
    (bulk,) = create_claims([wish("lab", seats=3)])
    named = create_claim(wish("lab", slot=slot.pk, seats=4))
    plain = create_claim(wish("lab"))
    assert not isinstance(bulk, BerthError)
    assert seats.attached == {bound.id: 1, waiting.id: 2, bulk.id: 3, named.id: 4}
    seats.shown.clear()
    view = view_claim(bound.id)
    assert seats.shown == [view]
    assert kinds.find_kind(bound.id) is seats
    assert kinds.find_kind(plain.id) is None


@pytest.mark.django_db
def test_a_key_repeats_only_the_same_work(seats: SeatKind) -> None:
    make_pool("lab", slots=2)
    first = create_claim(wish("lab", seats=1, key="k"))
    assert create_claim(wish("lab", seats=1, key="k")).id == first.id
    with pytest.raises(Conflict):
        create_claim(wish("lab", seats=2, key="k"))


@pytest.mark.django_db
def test_a_pool_may_require_the_work_of_a_kind(seats: SeatKind) -> None:
    make_pool("hall", slots=["any", "plan"])
    with pytest.raises(Invalid) as caught:
        create_claim(wish("hall", task="plan"))
    assert [fault.field for fault in caught.value.fields] == ["seats"]
    (answer,) = create_claims([wish("hall", task="plan")])
    assert isinstance(answer, Invalid)
    assert not Claim.objects.exists()
