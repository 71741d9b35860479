"""Claims as services and selectors return them: plain values for the API and for pages."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from claims import claims_sql
from claims.allocation.requests.claim_request import ClaimSpec
from claims.allocation.requests.policy import Terms
from claims.display import claim_class, claim_word
from claims.kinds import ShownApproval, ShownBackend, ShownCondition, ShownPort
from project.kernel.ui.formatting import rfc3339


@dataclass(slots=True)
class HeldSlot:
    id: int
    pool: str
    member_id: int
    member: str
    lane: str
    number: int
    labels: Mapping[str, str] = field(default_factory=dict)
    state: str = "held"
    addresses: str = ""  # of the member, as JSON; empty: not read

    @property
    def place(self) -> str:
        return f"{self.member} · {self.lane} {self.number}"

    def as_dict(self) -> dict[str, object]:
        return {
            "id": self.id, "pool": self.pool, "member": self.member, "member_id": self.member_id,
            "lane": self.lane, "number": self.number, "labels": dict(self.labels),
        }  # fmt: skip


@dataclass(slots=True)
class Wait:
    """Why a claim waits at this moment, and what would end the wait."""

    code: str
    text: str
    unblock: list[str] = field(default_factory=list)
    place: int | None = None  # position in the queue, from 1; None: the claim is not queued
    start: tuple[float, float] | None = None  # seconds from now: probability one half, nine in ten
    start_note: str = ""  # why there is no estimate, or on what it depends
    blockers: list[int] = field(default_factory=list)  # claims whose end would help
    facts: dict[str, object] = field(default_factory=dict)  # the numbers behind the text

    @property
    def blockers_to_name(self) -> list[int]:
        """The blockers that `text` does not name."""
        return [] if self.code in ("workspace_busy", "behind_head") else self.blockers

    def as_dict(self) -> dict[str, object]:
        band = (
            None
            if self.start is None
            else {"from_s": round(self.start[0], 1), "to_s": round(self.start[1], 1)}
        )
        return {
            "code": self.code, "text": self.text, "unblock": self.unblock, "place": self.place,
            "start": band, "start_note": self.start_note, "blockers": self.blockers,
            "facts": self.facts,
        }  # fmt: skip


@dataclass(slots=True)
class ClaimView:
    id: int
    pool: str | None  # the first pool, which need not exist
    pools: list[str]
    kind: str
    size: int  # slots in each pool; where a number takes two slots: numbers
    state: str
    generation: int
    created_at: datetime
    outcome: str = ""
    owner: str = ""
    requested_by: str = ""
    priority: int = 0
    key: str | None = None
    workspace: str | None = None
    workspace_pool: str | None = None  # name of the pool that the workspace belongs to
    task: str = ""
    slots: list[HeldSlot] = field(default_factory=list)
    bound_at: datetime | None = None
    acknowledge_by: datetime | None = None
    expires_at: datetime | None = None
    wait: Wait | None = None
    approval: ShownApproval | None = None  # of a plan that waits for its approval
    ports: list[ShownPort] = field(default_factory=list)  # of a claim of ports
    conditions: list[ShownCondition] = field(default_factory=list)
    backend: ShownBackend | None = None
    # The fields below are for pages and services; most of them are not in the JSON.
    pool_id: int | None = None
    workspace_id: int | None = None
    shape_id: int = 0
    total: int = 1  # slots in all pools
    rank: int = 100
    step: str = ""
    is_serial: bool = False
    terms: Terms = field(default_factory=Terms)
    spec: ClaimSpec = field(default_factory=ClaimSpec)
    acknowledged_at: datetime | None = None
    changed_at: datetime | None = None
    is_replay: bool = False  # an earlier call with the same key has created the claim

    @property
    def name(self) -> str:
        """The workspace, or the number of a claim without one."""
        return self.workspace or str(self.id)

    @property
    def workspace_path(self) -> str:
        """The workspace as addresses name it."""
        return (
            f"{self.workspace_pool}/{self.workspace}"
            if self.workspace_pool
            else self.workspace or ""
        )

    @property
    def css(self) -> str:
        return claim_class(self.state, outcome=self.outcome, step=self.step)

    @property
    def word(self) -> str:
        return claim_word(self.state, outcome=self.outcome, step=self.step)

    @property
    def label(self) -> str:
        """The name beside the id: workspace, owner or requester."""
        return self.workspace or self.owner or self.requested_by

    @property
    def is_ready(self) -> bool:
        """All its ports are ready."""
        return any(each["type"] == "ready" and each["is_met"] for each in self.conditions)

    @property
    def is_waiting(self) -> bool:
        return self.state in ("waiting", "blocked")

    @property
    def holds(self) -> bool:
        return self.state in ("bound", "reserved")

    def as_dict(self) -> dict[str, object]:
        return {
            "id": self.id,
            "pool": self.pool,
            "pools": self.pools,
            "kind": self.kind,
            "size": self.size,
            "state": self.state,
            "outcome": self.outcome,
            "generation": self.generation,
            "owner": self.owner,
            "requested_by": self.requested_by,
            "priority": self.priority,
            "key": self.key,
            "workspace": self.workspace,
            "workspace_pool": self.workspace_pool,
            "task": self.task,
            "step": self.step,
            "slots": [slot.as_dict() for slot in self.slots],
            "created_at": _iso(self.created_at),
            "bound_at": _iso(self.bound_at),
            "acknowledged_at": _iso(self.acknowledged_at),
            "acknowledge_by": _iso(self.acknowledge_by),
            "expires_at": _iso(self.expires_at),
            "approval": self.approval,
            "ports": self.ports,
            "conditions": self.conditions,
            "backend": self.backend,
            "wait": None if self.wait is None else self.wait.as_dict(),
        }


def claim_of_row(row: claims_sql.ViewClaimsRow) -> ClaimView:
    spec: ClaimSpec = json.loads(row.spec) if row.spec != "{}" else {}
    terms: Terms = json.loads(row.terms) if row.terms != "{}" else {}
    slots = [HeldSlot(*values) for values in json.loads(row.slots)] if row.slots else []
    claim = ClaimView(
        id=row.id, pool=row.pools[0], pools=row.pools, kind=row.kind, size=row.asked,
        state=row.state, generation=row.generation, created_at=row.created_at, outcome=row.outcome,
        owner=row.owner, requested_by=row.requested_by,
        priority=100 - (row.rank or spec.get("rank", 100)), key=row.key, workspace=row.workspace,
        workspace_pool=row.workspace_pool, workspace_id=row.workspace_id, task=spec.get("task", ""),
        slots=slots, bound_at=row.bound_at, pool_id=row.pool_id, shape_id=row.shape_id,
        total=row.size, rank=row.rank, step=row.step, is_serial=row.is_serial,
        terms=terms, spec=spec, acknowledged_at=row.acknowledged_at,
        changed_at=row.changed_at,
    )  # fmt: skip
    set_deadlines(claim, row.expires_at)
    if row.approval:
        claim.approval = json.loads(row.approval)
    return claim


def set_deadlines(claim: ClaimView, expires_at: datetime | None = None) -> None:
    """Sets when the holder must have acknowledged the claim, and when the claim ends by itself."""
    claim.expires_at = expires_at
    if claim.state == "bound" and claim.bound_at is not None and claim.spec:
        if (hold := claim.spec.get("hold")) is not None:
            claim.expires_at = claim.bound_at + timedelta(seconds=hold)
        if (within := claim.spec.get("acknowledge")) is not None and claim.acknowledged_at is None:
            claim.acknowledge_by = claim.bound_at + timedelta(seconds=within)


def _iso(moment: datetime | None) -> str | None:
    return None if moment is None else rfc3339(moment)
