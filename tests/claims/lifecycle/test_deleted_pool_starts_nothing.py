"""No apply begins in a pool that is being deleted."""

from typing import Any

import pytest

from claims.lifecycle.chores import end_claims_of_deleted_pools
from claims.lifecycle.pool_deletion import delete_pool
from tests.claims.tasks.approvals.helpers import (
    agents,
    begin,
    code_of,
    planned,
    row,
    workspace,
    yes,
)

pytestmark = pytest.mark.usefixtures("tables")


@pytest.mark.parametrize("is_approved", [True, False], ids=["approved before", "approved after"])
def test_no_apply_begins_in_a_pool_that_is_being_deleted(
    is_approved: bool, monkeypatch: Any
) -> None:
    agents(slots=("any",), members=2)
    claim = planned()
    if is_approved:
        yes(claim)
    with monkeypatch.context() as patched:
        patched.setattr("claims.lifecycle.pool_deletion.finish_deleting", lambda *_, **__: False)
        delete_pool("tf", cascade=True)
    if not is_approved:
        assert code_of(lambda: yes(claim)) == "pool_deleting"
        assert row(claim).state == "reserved"
    else:
        assert code_of(lambda: begin(claim)) == "stale_generation"
    end_claims_of_deleted_pools()
    assert (row(claim).outcome, workspace().lost_claim_id) == ("cancelled", None)
