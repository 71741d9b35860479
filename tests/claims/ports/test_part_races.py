"""Races of claims of several ports, in real processes on a real PostgreSQL. A docstring says how
its test was seen red.
"""

import pytest

from claims.models import Claim
from slots.models import Slot
from tests.claims.helpers import ask, is_sound, let_go, make_pool, serve
from tests.claims.parallel_processes import together

pytestmark = pytest.mark.usefixtures("committed_tables")
THREE = "80/TCP,9999/UDP,7777/TCPUDP"


def make_clb(members: int, quota: int) -> None:
    make_pool(
        "clb",
        slots={"ports": "30000-30999", "protocols": ["tcp", "udp"], "quota": quota},
        members=members,
    )


@pytest.mark.parametrize(
    "ports",
    [
        pytest.param(THREE, id="searched"),
        pytest.param("80/TCP,9999/UDP,81/TCP,53/UDP", id="in one statement"),
    ],
)
def test_parallel_claims_of_ports_take_every_slot_once(ports: str) -> None:
    """Searched: red without the lock of find_any: claims found the same slots, and the database
    refused one of them (BR002: it has 2 of 4 slots). In one statement: red without the lock in
    `free` of create_and_bind_several (BR001: the slot is held by another claim).
    """
    make_clb(members=8, quota=50)

    def claim(k: int) -> list[tuple[str, int]]:
        made = [ask("clb", ports=ports, owner=f"pod:{k}:{i}") for i in range(15)]
        return [(each.state, len(each.slots)) for each in made]

    found = [row for rows in together(*[claim] * 6) for row in rows]
    assert set(found) <= {("bound", 4), ("waiting", 0)}
    serve()
    assert Claim.objects.filter(state="bound").count() == 90
    assert Slot.objects.filter(state="held").count() == 360
    assert is_sound()


def test_a_claim_of_ports_and_claims_of_its_lanes_leave_none_half_bound() -> None:
    make_clb(members=1, quota=20)

    def of_ports(k: int) -> int:
        bound = 0
        for i in range(20):
            made = ask("clb", ports="80/TCP,53/UDP", owner=f"{k}:{i}")
            bound += made.state == "bound"
            if made.state == "bound":
                let_go(made)
        return bound

    def of_one(k: int) -> int:
        for i in range(20):
            made = ask("clb", kind="tcp", owner=f"{k}:{i}")
            if made.state == "bound":
                let_go(made)
        return 0

    together(of_ports, of_ports, of_one, of_one)
    serve()
    sizes = {claim.pk: claim.size for claim in Claim.objects.filter(state="bound")}
    holds = [slot.claim_id for slot in Slot.objects.filter(state="held")]
    assert {claim: holds.count(claim) for claim in sizes} == sizes
    assert is_sound()
