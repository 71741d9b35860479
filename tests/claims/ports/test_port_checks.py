"""The doctor compares the parts and targets of claims with their slots."""

from typing import Any

import pytest

from claims.checks.ports import find_targets_without_owner, find_uncovered_claims
from claims.models import BackendTarget, ClaimPart
from claims.ports.backends import BackendRequest, set_backend
from tests.claims.helpers import ask
from tests.claims.ports.quay import PROVIDERS, Quay, QuayProvider, make_quay

pytestmark = pytest.mark.usefixtures("committed_tables")


@pytest.fixture(autouse=True)
def _world(settings: Any) -> None:
    settings.BERTH_PROVIDERS = PROVIDERS
    QuayProvider.world = Quay()


def test_doctor_finds_parts_that_do_not_cover_the_slots_of_their_claim() -> None:
    make_quay()
    claim = ask("lb", ports="80/TCP,53/TCPUDP")
    ask("lb", ports="80/TCP")
    assert list(find_uncovered_claims()) == []
    ClaimPart.objects.filter(claim_id=claim.id, index=1).update(count=1)
    (found,) = find_uncovered_claims()
    assert (found.subject, found.detail) == (
        f"claim {claim.id}",
        "2 parts have 2 slots, and the claim has 3",
    )
    ClaimPart.objects.filter(claim_id=claim.id, index=1).update(count=2, first=0)
    assert len(list(find_uncovered_claims())) == 1


def test_doctor_finds_targets_that_their_claim_does_not_own() -> None:
    make_quay()
    claims = [ask("lb", ports="80/TCP") for _ in range(2)]
    for claim in claims:
        set_backend(
            claim_id=claim.id, generation=claim.generation, backend=BackendRequest("10.0.0.7")
        )
    assert list(find_targets_without_owner()) == [], "the second claim waits for the target"
    BackendTarget.objects.all().delete()
    assert [found.subject for found in find_targets_without_owner()] == [f"claim {claims[0].id}"]
