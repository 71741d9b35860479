"""Parses the request of a claim from the body of a call, a form or a file, and reports all faults
at once. Pure.
"""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import TypedDict

from claims.allocation.requests.policy import PartDemand, PartTerms, Terms
from claims.kinds import ClaimKind, WantedPart, Work, list_kinds
from claims.workspaces.names import WORKSPACE, WORKSPACE_RULE
from pools.config.durations import DAY, SECOND, format_duration
from pools.config.fields import Fields, Option, fields_of, option
from pools.config.label_selector import (
    LabelRule,
    read_selector,
    selector_schema,
    write_selector,
)
from pools.config.layout_spec import KIND
from pools.config.parsing import (
    Choice,
    Described,
    Duration,
    Faults,
    Flag,
    Integer,
    Schema,
    Text,
    kind_of,
    show_value,
)
from pools.config.spec import NAME, NAME_RULE, LeaseSpec
from project.kernel.errors import FieldError, Invalid

TASKS = ("plan", "plan_and_apply", "drift_check")
SERIAL = "plan_and_apply"  # one claim at a time in a workspace
PARTS = "parts"  # the kind of a claim of several parts, each with a kind of its own
MOST_POOLS = 16
MOST_POOL_LISTS = 16  # of the parts of one claim: each list is searched and explained by itself
MOST_SLOTS = 1000  # of one claim in all its pools
MOST_LABELS = 16
LOWEST_PRIORITY, HIGHEST_PRIORITY = -100, 99
POOL_NAME: Schema = {
    "type": "string",
    "pattern": r"^[a-z0-9]([a-z0-9._-]{0,61}[a-z0-9])?$",
    "example": "env-test",
}
POOL = Option(Described(POOL_NAME), "The claim waits for a pool that does not exist yet.")
WORKSPACE_NAME = Text(120)


class ClaimSpec(TypedDict, total=False):
    """The fields that a claim stores beside its queue. Limits are in seconds."""

    acknowledge: float
    heartbeat: float
    hold: float
    due_in: float  # the shortest limit
    task: str
    retry: bool
    rank: int  # of a claim that an approval has moved to the head of its queue
    slot: int  # the slot that it asked for


@dataclass(frozen=True, slots=True)
class ClaimRequest:
    """The request of a claim. The claim gets `size` slots in each pool, or none."""

    pools: tuple[str, ...] = option(
        Described({"type": "array", "items": POOL_NAME, "minItems": 1, "maxItems": MOST_POOLS}),
        (),
        "The claim gets slots in each of these pools, or none.",
    )
    kind: str = option(
        Described({"type": "string", "pattern": r"^([a-z][a-z0-9_-]{0,31})?$"}),
        "",
        "A kind of claims of the pool's layout; default: its only kind. `tcp_udp` takes the same "
        "number in TCP and UDP of one member: two slots if the pool has separate protocols, one "
        "slot if the protocols share a listener.",
    )
    size: int = option(
        Integer(1, MOST_SLOTS), 1, "Slots in each pool, all or none. For tcp_udp: numbers."
    )
    owner: str = option(
        Text(160), "", "The user of the slots, for example pod:UID or workspace:NAME."
    )
    # The key makes the call safe to repeat.
    key: str | None = option(Text(120), None, "Replaces the header Idempotency-Key.")
    priority: int = option(Integer(LOWEST_PRIORITY, HIGHEST_PRIORITY), 0, "")
    contiguous: bool = option(Flag(), False, "Numbers in a row, on one member.")
    on_one_member: bool = option(Flag(), False, "")
    same_number: bool = option(Flag(), False, "The same number in every pool.")
    selector: tuple[tuple[str, str | LabelRule], ...] = option(
        Described(selector_schema(MOST_LABELS)),
        (),
        "Labels that the member must have: a value, or `in`, `not_in` and `exists`.",
    )
    workspace: str = option(
        Described(
            WORKSPACE_NAME.schema()
            | {"pattern": r"^([A-Za-z0-9]([A-Za-z0-9._/-]{0,118}[A-Za-z0-9])?)?$"}
        ),
        "",
        "",
    )
    task: str = option(Choice(TASKS), "", "")
    # The limits are in seconds.
    acknowledge_within: float | None = option(
        Duration(SECOND, DAY),
        None,
        "Without it the claim ends unacknowledged. Default: the pool's limit.",
    )
    heartbeat_within: float | None = option(
        Duration(SECOND, DAY),
        None,
        "Without heartbeats the claim ends silent. Default: the pool's limit.",
    )
    hold_for: float | None = option(
        Duration(SECOND, 365 * DAY), None, "Then the claim expires. Default: the pool's limit."
    )
    retry: bool | None = option(
        Flag(),
        None,
        "Queue the claim again after its member is lost. Default: true for tasks, else false.",
    )
    slot: int | None = option(
        Integer(1, 2**63 - 1),
        None,
        "Claim this slot only (operators). The claim never waits.",
    )
    requested_by: str = ""
    work: Work | None = None  # parsed by its kind; None: the claim only holds slots
    parts: tuple[PartDemand, ...] = ()  # of the work, in the order of the slots

    @property
    def is_serial(self) -> bool:
        return self.task == SERIAL

    @property
    def is_simple(self) -> bool:
        """One slot, one pool, no terms: served in batches."""
        return self.size == 1 and len(self.pools) == 1 and not self.selector

    @property
    def is_plain(self) -> bool:
        """A simple claim of any free slot, without workspace and work: one statement creates it."""
        return self.is_simple and self.slot is None and not self.workspace and self.work is None

    @property
    def step(self) -> str:
        """The first step of the claim."""
        return "plan" if self.task else ""

    @property
    def rank(self) -> int:
        """The smaller rank goes first. Approved claims have rank 0."""
        return 100 - self.priority

    @property
    def has_several_parts(self) -> bool:
        return len(self.parts) > 1

    @property
    def total(self) -> int:
        if self.has_several_parts:
            return sum(part.size * len(part.pools) for part in self.parts)
        return self.size * len(self.pools)

    @property
    def is_retried(self) -> bool:
        return bool(self.task) if self.retry is None else self.retry

    @property
    def terms(self) -> Terms:
        """The conditions on slots beside the lane, as the queue stores them."""
        found: Terms = {}
        if self.size > 1 and self.contiguous:
            found["contiguous"] = True
        if self.size > 1 and self.on_one_member:
            found["on_one_member"] = True
        if self.same_number:
            found["same_number"] = True
        if self.selector:
            found["selector"] = write_selector(self.selector)
        if self.has_several_parts:
            found["parts"] = write_parts(self.parts)
        return found

    def digest(self) -> bytes:
        """Digest of all fields but key and requester. A repeated key must bring the same digest."""
        values: tuple[object, ...] = (
            self.pools, self.kind, self.size, self.owner, self.priority, self.contiguous,
            self.on_one_member, self.same_number, self.selector, self.workspace, self.task,
            self.acknowledge_within, self.heartbeat_within, self.hold_for, self.retry, self.slot,
        )  # fmt: skip
        if self.work is not None:  # stored digests of claims without work do not contain it
            values = (*values, self.work.digest())
        return hashlib.blake2b(repr(values).encode(), digest_size=16).digest()

    def spec(self, lease: LeaseSpec) -> str:
        """The `ClaimSpec` as JSON. A limit that the request does not set is the pool's."""
        limits = (
            ("acknowledge", self.acknowledge_within, lease.acknowledge),
            ("heartbeat", self.heartbeat_within, lease.heartbeat),
            ("hold", self.hold_for, lease.hold),
        )
        chosen = {name: of_pool if own is None else own for name, own, of_pool in limits}
        seconds = {name: value for name, value in chosen.items() if value is not None}
        found: dict[str, float | str | bool] = {**seconds}
        if seconds:
            found["due_in"] = min(seconds.values())
        if self.task:
            found["task"] = self.task
        if self.is_retried:
            found["retry"] = True
        if self.slot is not None:
            found["slot"] = self.slot
        return json.dumps(found) if found else "{}"


def write_parts(parts: Sequence[PartDemand]) -> list[PartTerms]:
    """The parts as stored. Neighbours that differ in their size only become one part."""
    found: list[PartTerms] = []
    for part in parts:
        terms: PartTerms = {"kind": part.kind, "pools": list(part.pools)}
        if part.same_number:
            terms["same_number"] = True
        last = found[-1] if found else None
        if last is not None and terms == {k: v for k, v in last.items() if k != "size"}:
            last["size"] = last.get("size", 1) + part.size
        else:
            found.append(terms if part.size == 1 else {**terms, "size": part.size})
    return found


def shape_digest(pools: tuple[str, ...], kind: str, size: int, terms: Terms) -> bytes:
    """Key of the queue that equal requests share. `size` counts the slots in each pool."""
    text = json.dumps([pools, kind, size, terms], sort_keys=True, separators=(",", ":"))
    return hashlib.blake2b(text.encode(), digest_size=16).digest()


REQUEST_FIELDS = fields_of(ClaimRequest)


@cache
def claim_fields(kinds: tuple[ClaimKind, ...]) -> Fields:
    """The fields of the body of a new claim, with the field of each kind of claim."""
    of_kinds = {kind.field: Option(Described(kind.schema), "") for kind in kinds}
    return Fields({"pool": POOL} | REQUEST_FIELDS | of_kinds)


def parse_claim(body: object, *, requested_by: str, key: str | None = None) -> ClaimRequest:
    """Raises `Invalid` with all faults of the body. `key` is the value of the header; the body may
    contain the key instead.
    """
    request, faults = read_claim(body, requested_by=requested_by, key=key)
    if request is None:
        raise Invalid(fields=faults)
    return request


def read_claim(
    body: object, *, requested_by: str, key: str | None = None
) -> tuple[ClaimRequest | None, list[FieldError]]:
    faults = Faults()
    kinds = tuple(list_kinds())
    given = claim_fields(kinds).read(body, "", faults, {"selector": _read_selector})
    if not isinstance(body, Mapping):
        return None, faults.found
    task = given.get("task", "")
    named = [kind for kind in kinds if given.get(kind.field) is not None]
    is_needed = body.get("slot") is None and not any(
        kind.names_pools(given[kind.field]) for kind in named
    )
    read = {
        "pools": _read_pools(given, faults, is_needed=is_needed),
        "kind": _read_kind(given.get("kind"), task, faults),
        "key": _read_key(given.get("key"), key, faults),
        "workspace": _read_workspace(given.get("workspace"), task, faults),
    }
    plain = {name: value for name, value in given.items() if name in REQUEST_FIELDS}
    request = ClaimRequest(**(plain | read), requested_by=requested_by)
    for kind in named:
        work = kind.read(given[kind.field], request, faults)
        request = _with_parts(replace(request, work=work), kind.list_parts(work), faults)
    if len(named) > 1:
        text = f"It excludes {named[0].field}: a claim is of one kind."
        faults.add(named[1].field, text, "Give one of them.")
    _check_together(request, faults)
    return (None, faults.found) if faults.found else (request, [])


def _with_parts(
    request: ClaimRequest, wanted: Sequence[WantedPart], faults: Faults
) -> ClaimRequest:
    """The request with the parts of its work. A claim of one part asks for the same as a claim
    without parts, and waits in the same queue.
    """
    if not wanted:
        return request
    parts = [
        PartDemand(part.kind, part.pools, part.size, part.same_number, part.where, part.options)
        for part in wanted
    ]
    pools = tuple(dict.fromkeys(pool for part in parts for pool in part.pools))
    if len(pools) > MOST_POOLS:
        text = f"{len(pools)} pools are too many for one claim."
        faults.add(parts[0].where.partition("[")[0], text, f"Use {MOST_POOLS} at most.")
    lists = list(dict.fromkeys(part.pools for part in parts))
    if len(lists) > MOST_POOL_LISTS:
        where = next(part.where for part in parts if part.pools == lists[MOST_POOL_LISTS])
        text = f"The claim names {len(lists)} different lists of pools."
        way_out = f"Use {MOST_POOL_LISTS} at most; the same pools in another order count again."
        faults.add(where, text, way_out)
    request = replace(request, pools=pools, parts=tuple(parts))
    if len(parts) > 1:
        return replace(request, kind=PARTS, size=sum(part.size for part in parts))
    (part,) = parts
    return replace(request, kind=part.kind, size=part.size, same_number=part.same_number)


def _read_pools(given: Mapping[str, object], faults: Faults, *, is_needed: bool) -> tuple[str, ...]:
    one, many = given.get("pool"), given.get("pools")
    if one is not None and many is not None:
        faults.add("pools", "The fields pool and pools exclude each other.", "Give one of them.")
        return ()
    if one is None and many is None:
        if is_needed:
            faults.add("pool", "A pool is required.", "Name a pool, or several as pools.")
        return ()
    field = "pool" if many is None else "pools"
    names = [one] if many is None else many
    if not isinstance(names, list | tuple) or not names:
        faults.add(
            field,
            f"This is {kind_of(names)}; it must be a list of names.",
            "Write it like [game-eu, game-us].",
        )
        return ()
    if len(names) > MOST_POOLS:
        faults.add(
            field, f"{len(names)} pools are too many for one claim.", f"Use {MOST_POOLS} at most."
        )
        return ()
    for i, name in enumerate(names):
        where = field if many is None else f"{field}[{i}]"
        if not isinstance(name, str) or not NAME.fullmatch(name):
            faults.add(where, f"{show_value(name)} is not the name of a pool.", NAME_RULE)
        elif name in names[:i]:
            faults.add(
                where,
                f"{name} is named twice.",
                "Name each pool once; for more slots in it raise size.",
            )
    return tuple(name for name in names if isinstance(name, str))


def _read_selector(
    value: object, where: str, faults: Faults
) -> tuple[tuple[str, str | LabelRule], ...]:
    return () if value is None else read_selector(value, where, faults, MOST_LABELS)


def _read_kind(kind: object, task: str, faults: Faults) -> str:
    if kind is None or kind == "":
        return task
    if not isinstance(kind, str) or not KIND.fullmatch(kind):
        faults.add(
            "kind",
            f"{show_value(kind)} is not a kind of claim.",
            "Up to 32 small letters, digits, dashes; a letter first.",
        )
        return ""
    if task and kind != task:
        faults.add("kind", f"The kind of a task {task} is {task}, not {kind}.", "Leave kind out.")
    return kind


def _read_key(inside: str | None, key: str | None, faults: Faults) -> str | None:
    if key and inside and key != inside:
        faults.add("key", "It differs from the Idempotency-Key header.", "Give one of them.")
    return key or inside or None


def _read_workspace(value: object, task: str, faults: Faults) -> str:
    name = "" if value is None else WORKSPACE_NAME.read(value, "workspace", faults) or ""
    if name and not WORKSPACE.fullmatch(name):
        faults.add(
            "workspace", f"{show_value(name)} is not the name of a workspace.", WORKSPACE_RULE
        )
    if task == SERIAL and not name:
        faults.add(
            "workspace",
            f"{SERIAL} needs a workspace.",
            "Name the workspace, or ask for a plan.",
        )
    return name


def _check_together(request: ClaimRequest, faults: Faults) -> None:
    """Adds faults for fields that exclude each other."""
    add = faults.add
    if request.total > MOST_SLOTS:
        add(
            "size",
            f"{request.size} slots in {len(request.pools)} pools are {request.total}.",
            f"Use {MOST_SLOTS} at most in all.",
        )
    if request.same_number and len(request.pools) == 1:
        add(
            "same_number",
            "The number is compared between pools, and one pool is named.",
            "Leave it out, or name several pools.",
        )
    if request.slot is not None:
        for name in ("contiguous", "on_one_member", "same_number", "selector"):
            if getattr(request, name):
                add(name, "A claim of a named slot has no conditions.", "Leave it out.")
        if request.size != 1 or len(request.pools) > 1:
            add("slot", "A named slot is one slot.", "Leave out size, and name one pool at most.")
    for name, seconds in (
        ("acknowledge_within", request.acknowledge_within),
        ("heartbeat_within", request.heartbeat_within),
    ):
        if seconds is not None and request.hold_for is not None and seconds >= request.hold_for:
            what = (
                f"{format_duration(seconds)} is not shorter than hold_for, "
                f"{format_duration(request.hold_for)}."
            )
            add(name, what, "Shorten it.")
