"""Which approvals of a plan count: their users must have the right to decide in its pool at this
moment.
"""

from collections.abc import Sequence
from typing import Protocol

from pools.access.permissions import Identity, load_identities
from pools.config.approval_spec import ApprovalSpec


class GivenApproval(Protocol):
    """The fields that the model and the rows of statements share."""

    @property
    def user_id(self) -> int | None: ...
    @property
    def by_user(self) -> str: ...


def find_faults(
    given: Sequence[GivenApproval], *, pool_id: int | None, requested_by: str, rule: ApprovalSpec
) -> list[str]:
    """For each approval the reason why it does not count; empty for an approval that counts."""
    users = load_identities(one.user_id for one in given if one.user_id is not None)
    return [_fault(one, users, pool_id, requested_by, rule) for one in given]


def _fault(
    one: GivenApproval,
    users: dict[int, Identity | None],
    pool_id: int | None,
    requested_by: str,
    rule: ApprovalSpec,
) -> str:
    if one.user_id is None or one.user_id not in users:
        return f"{one.by_user} no longer exists."
    user = users[one.user_id]
    if user is None:
        return f"{one.by_user} is deactivated."
    if not user.may("decide", pool_id):
        return f"{one.by_user} no longer has the role approver in this pool."
    if not rule.own and user.requester == requested_by:
        return (
            f"{one.by_user} requested the claim, and this pool does not count the "
            "requester’s approval."
        )
    return ""
