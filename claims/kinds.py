"""The interface of a kind of claim, which adds work to a claim that holds slots.

A kind owns one field of the body of a new claim: tasks own `run`. The package of the kind registers
it in a module that `claims/performers.py` imports, so every process knows all kinds once Django has
started. Allocation and lifecycle call the kinds through this module only.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import ClassVar, Protocol, TypedDict

from pools.config.parsing import Faults
from pools.config.spec import PoolSpec

# Writes the rows of the kind, in the transaction that creates the claim of this id.
Attach = Callable[[int], None]


class Work(Protocol):
    """The field of a kind, parsed."""

    def digest(self) -> str:
        """A digest of the whole value: a repeated idempotency key must bring the same value."""


class WantedPart(Protocol):
    """One part of a claim: numbers of one kind, in each of some pools."""

    @property
    def kind(self) -> str: ...
    @property
    def pools(self) -> tuple[str, ...]: ...
    @property
    def size(self) -> int: ...
    @property
    def same_number(self) -> bool: ...
    @property
    def options(self) -> Mapping[str, object]: ...  # stored with the part
    @property
    def where(self) -> str: ...  # its field in the body


class StoredPart(TypedDict):
    """A row of `ClaimPart`."""

    index: int
    kind: str
    pools: tuple[str, ...]
    count: int
    first: int
    options: Mapping[str, object]


class NewClaim(Protocol):
    """A claim that is about to be created."""

    @property
    def pools(self) -> tuple[str, ...]: ...
    @property
    def size(self) -> int: ...
    @property
    def kind(self) -> str: ...
    @property
    def contiguous(self) -> bool: ...
    @property
    def on_one_member(self) -> bool: ...
    @property
    def same_number(self) -> bool: ...
    @property
    def slot(self) -> int | None: ...
    @property
    def task(self) -> str: ...
    @property
    def workspace(self) -> str: ...
    @property
    def requested_by(self) -> str: ...
    @property
    def work(self) -> Work | None: ...


class ClaimPool(Protocol):
    """The first pool of a claim."""

    @property
    def name(self) -> str: ...
    @property
    def spec(self) -> PoolSpec: ...


class ShownApproval(TypedDict):
    """A plan that waits for its approval."""

    plan: int
    digest: str
    summary: Mapping[str, object]
    since: str
    needed: int
    given: int


class ShownCondition(TypedDict):
    """A condition of a claim or of a port: since when it is met or not, and why not."""

    type: str  # allocated, programmed or ready
    is_met: bool
    is_failed: bool  # it is not met, and waiting does not help
    since: str | None
    reason: str


class ShownPort(TypedDict):
    """A port of a claim, with its listener; without one while the claim waits."""

    port: int | None  # of the program, if the claim names it
    protocol: str
    pool: str
    member: str | None
    number: int | None  # on the load balancer
    end: int | None  # the last number of a segment
    address: str | None
    addresses: list[str]
    listener: str | None  # its id at the provider
    target: str | None  # as the provider sees it
    health: str | None
    ready: bool
    conditions: list[ShownCondition]


class ShownBackend(TypedDict):
    ip: str
    ports: list[int]


class ShownSlot(Protocol):
    @property
    def id(self) -> int: ...
    @property
    def pool(self) -> str: ...
    @property
    def member_id(self) -> int: ...
    @property
    def member(self) -> str: ...
    @property
    def lane(self) -> str: ...
    @property
    def number(self) -> int: ...
    @property
    def addresses(self) -> str: ...  # of the member, as JSON; empty: not read


class ShownClaim(Protocol):
    """A claim that the API or a page is about to show."""

    approval: ShownApproval | None
    ports: list[ShownPort]
    conditions: list[ShownCondition]
    backend: ShownBackend | None

    @property
    def id(self) -> int: ...
    @property
    def kind(self) -> str: ...
    @property
    def state(self) -> str: ...
    @property
    def slots(self) -> Sequence[ShownSlot]: ...
    @property
    def bound_at(self) -> datetime | None: ...
    @property
    def created_at(self) -> datetime: ...
    @property
    def pool_id(self) -> int | None: ...
    @property
    def requested_by(self) -> str: ...


class ClaimKind(ABC):
    field: ClassVar[str]  # name of its field in the body of a new claim
    schema: ClassVar[dict[str, object]]  # JSON Schema of the field
    template: ClassVar[str]  # page of a claim of this kind

    @abstractmethod
    def read(self, value: object, claim: NewClaim, faults: Faults) -> Work | None:
        """Parses the field and checks it against the rest of the claim. Adds a fault for each
        problem; returns None if no value remains.
        """

    def names_pools(self, value: object) -> bool:
        """Whether the field names all pools of the claim, which then needs no `pool`."""
        return False

    def list_parts(self, work: Work | None) -> Sequence[WantedPart]:
        """The parts that the work asks for, which replace kind and size of the claim. They are
        stored with the claim.
        """
        return ()

    @abstractmethod
    def is_missing(self, claim: NewClaim, pool: ClaimPool | None) -> bool:
        """Whether the pool requires a value in the field, and the claim has none. Batches check
        only claims with a task.
        """

    @abstractmethod
    def prepare(self, claim: NewClaim, pool: ClaimPool | None) -> Attach | None:
        """Checks the claim against its pool, before the transaction. May write files. Raises
        `Invalid` for a claim that could never run; returns None for a claim of another kind.
        """

    @abstractmethod
    def owns(self, claim_id: int) -> bool:
        """Whether the stored claim is of this kind."""

    @abstractmethod
    def display(self, claims: Sequence[ShownClaim]) -> None:
        """Completes the shown claims of this kind."""

    def display_new(
        self,
        claim: ShownClaim,
        new: NewClaim,
        parts: Sequence[StoredPart],
        pools: Sequence[ClaimPool | None],
    ) -> None:
        """Completes a claim that was just created in these pools, like `display`. A kind that knows
        the claim's rows from its request need not read them.
        """
        self.display([claim])


_kinds: list[ClaimKind] = []


def register_kind(kind: ClaimKind) -> None:
    if any(kind.field == known.field for known in _kinds):
        raise ValueError(f"two kinds of claims own the field {kind.field}")
    _kinds.append(kind)


def list_kinds() -> Sequence[ClaimKind]:
    return _kinds


def find_kind(claim_id: int) -> ClaimKind | None:
    """The kind of a stored claim; None for a claim that only holds slots."""
    return next((kind for kind in _kinds if kind.owns(claim_id)), None)


def is_work_missing(claim: NewClaim, pool: ClaimPool | None) -> bool:
    return any(kind.is_missing(claim, pool) for kind in _kinds)


def prepare_work(claim: NewClaim, pool: ClaimPool | None) -> Sequence[Attach]:
    """Lets each kind check the claim. Raises `Invalid` if a kind refuses it."""
    prepared = [kind.prepare(claim, pool) for kind in _kinds]
    return [attach for attach in prepared if attach is not None]


def complete_views(claims: Sequence[ShownClaim]) -> None:
    for kind in _kinds:
        kind.display(claims)


def complete_new_view(
    claim: ShownClaim,
    new: NewClaim,
    parts: Sequence[StoredPart],
    pools: Sequence[ClaimPool | None],
) -> None:
    for kind in _kinds:
        kind.display_new(claim, new, parts, pools)
