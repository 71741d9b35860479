"""Lists of rescued Terraform states, for the pages of claims and workspaces and for the API."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from claims.tasks.states import rescued_sql

KEPT, ON_AGENT, LOST, SETTLED = "kept", "on_agent", "lost", "settled"


@dataclass(frozen=True, slots=True)
class RescuedView:
    claim_id: int
    generation: int
    pool_id: int | None
    workspace: str
    member_id: int
    member: str
    size: int
    digest: str
    # kept by the server | on_agent: only the agent has it | lost with its agent | settled: deleted
    status: str
    noted_at: datetime
    kept_at: datetime | None

    @property
    def href(self) -> str:
        return f"/claims/{self.claim_id}/state/{self.generation}/"


def list_rescued(claim_id: int) -> list[RescuedView]:
    """The states of a claim, including settled ones."""
    return [_view(row) for row in rescued_sql.of_claim(claim=claim_id)]


def list_rescued_in(workspaces: Sequence[int]) -> dict[int, list[RescuedView]]:
    """The unsettled states by workspace."""
    found: dict[int, list[RescuedView]] = defaultdict(list)
    for row in rescued_sql.of_workspaces(workspaces=list(workspaces)) if workspaces else ():
        found[row.workspace_id].append(_view(row))
    return found


def list_unsettled(limit: int) -> list[RescuedView]:
    return [_view(row) for row in rescued_sql.unsettled(limit)]


def find_rescued(claim_id: int, generation: int) -> RescuedView | None:
    return next((view for view in list_rescued(claim_id) if view.generation == generation), None)


def _view(row: rescued_sql.OfClaimRow | rescued_sql.OfWorkspacesRow) -> RescuedView:
    if row.settled_at is not None:
        status = SETTLED
    elif row.file:
        status = KEPT
    else:
        status = ON_AGENT if row.is_on_agent else LOST
    digest = "" if row.digest is None else bytes(row.digest).hex()
    return RescuedView(
        row.claim_id, row.generation, row.pool_id, row.workspace or "", row.member_id, row.member,
        row.size, digest, status, row.noted_at, row.kept_at,
    )  # fmt: skip
