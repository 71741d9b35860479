"""The list of claims: parse the typed query, find the rows and the actions on each."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from claims.allocation.api.permissions import may_see, require_change
from claims.allocation.claim_view import ClaimView
from claims.allocation.selectors import ClaimFilter, list_claims, queue_of_pool
from claims.display import GOOD_OUTCOMES, class_word, filter_of_class
from claims.lifecycle.dashboard_queries import Queue, count_claims, count_waiting, in_pools
from pools.access.permissions import Identity
from pools.config.label_selector import describe_selector
from pools.config.layout import PAIRED
from pools.lifecycle.selectors import LIVE, list_pools
from pools.models import Member, Pool
from project.kernel.errors import Forbidden, NotFound
from project.kernel.ui import formatting
from slots.pages.dashboard_queries import ShownSlotCounts, count_slots

KEYS = ("state", "pool", "owner", "by", "workspace", "kind", "member", "key")
CHIPS = (
    "waiting",
    "bound",
    "running",
    "apply_pending",
    "applying",
    "failed",
    "lost",
    "expired",
    "cancelled",
    "done",
)
ALWAYS = ("waiting", "bound", "done")
EACH, ONE_POOL, PAGE = 20, 200, 100
IN_POOL = " AND pool_id = (SELECT id FROM pools_pool WHERE name = %(pool)s AND state <> 'gone')"
HORIZON = 3600.0  # seconds that the bar of the estimated start shows


@dataclass(frozen=True, slots=True)
class ClaimSearch:
    """Such as `pool:tf-prod state:waiting network`: keys, and a text to find in owners,
    workspaces and ids.
    """

    keys: dict[str, str] = field(default_factory=dict)
    text: str = ""

    @property
    def state(self) -> str:
        return self.keys.get("state", "")

    def with_state(self, state: str) -> str:
        return str(
            replace(
                self, keys={"state": state} | {k: v for k, v in self.keys.items() if k != "state"}
            )
        )

    def __str__(self) -> str:
        return " ".join(
            [*(f"{k}:{v}" for k, v in self.keys.items()), *([self.text] if self.text else [])]
        )


def read_query(typed: str) -> ClaimSearch:
    keys: dict[str, str] = {}
    rest = []
    for word in typed[:250].split():
        key, sign, value = word.partition(":")
        if sign and key in KEYS and value:
            keys[key] = value
        else:
            rest.append(word)
    return ClaimSearch(keys, " ".join(rest))


@dataclass(frozen=True, slots=True)
class ClaimRow:
    claim: ClaimView
    can: str  # release, cancel, prioritise
    trace: str  # the page of its first slot

    @property
    def name(self) -> str:
        return self.claim.label or str(self.claim.id)

    @property
    def what(self) -> str:
        return describe_demand(self.claim)

    @property
    def unblock(self) -> str:
        ways = self.claim.wait.unblock if self.claim.wait else []
        return (
            ", or ".join([ways[0], *(way[:1].lower() + way[1:] for way in ways[1:2])])
            if ways
            else ""
        )

    @property
    def band(self) -> tuple[int, int] | None:
        start = self.claim.wait.start if self.claim.wait else None
        return (
            None
            if start is None
            else (
                min(97, round(100 * start[0] / HORIZON)),
                min(100, max(3, round(100 * start[1] / HORIZON))),
            )
        )

    @property
    def probably(self) -> str:
        return describe_estimate(self.claim)


def describe_demand(claim: ClaimView) -> str:
    parts = []
    if claim.terms.get("parts"):
        parts.append(f"{claim.size} ports")
    elif claim.kind and claim.kind not in ("slot", "node", "port"):
        parts.append(claim.kind)
    if claim.size > 1 and not claim.terms.get("parts"):
        parts.append(f"{claim.size} {'numbers' if claim.kind in PAIRED else 'slots'}")
    if len(claim.pools) > 1:
        parts.append(f"in {len(claim.pools)} pools")
    parts += [
        word
        for name, word in (
            ("contiguous", "in a row"),
            ("on_one_member", "on one member"),
            ("same_number", "same number"),
        )
        if claim.terms.get(name)
    ]
    if selector := claim.terms.get("selector"):
        parts.append(describe_selector(selector))
    if claim.priority:
        parts.append(f"priority {claim.priority}")
    return ", ".join(parts)


def describe_estimate(claim: ClaimView) -> str:
    wait = claim.wait
    if wait is None:
        return ""
    if wait.start is None:
        return wait.start_note or "unknown"
    return "at once" if wait.start[1] <= 1 else formatting.span(*wait.start)


@dataclass(frozen=True, slots=True)
class PoolQueue:
    """The waiting claims of a pool."""

    name: str
    exists: bool
    rows: Sequence[ClaimRow]
    queue: Queue
    slots: ShownSlotCounts | None
    is_paused: bool = False

    @property
    def more(self) -> int:
        return max(0, self.queue.count - len(self.rows))

    @property
    def summary(self) -> str:
        if not self.exists:
            return f"{self.queue.count:,} waiting, the pool does not exist"
        open_slots = f"{self.slots.open:,} of {self.slots.total:,} slots open" if self.slots else ""
        blocked = f", {self.queue.blocked:,} of them blocked" if self.queue.blocked else ""
        return (
            f"{self.queue.count:,} waiting{blocked}, "
            f"{open_slots}{', paused' if self.is_paused else ''}"
        )


def make_row(identity: Identity, claim: ClaimView) -> ClaimRow:
    trace = (
        f"/pools/{claim.slots[0].pool}/?member={claim.slots[0].member}"
        if claim.slots
        else f"/pools/{claim.pool}/?tab=queue"
        if claim.pool
        else ""
    )
    return ClaimRow(claim, " ".join(allowed_actions(identity, claim)), trace)


def allowed_actions(identity: Identity, claim: ClaimView) -> list[str]:
    if not may_touch(identity, claim):
        return []
    if claim.is_waiting:
        return ["cancel", "prioritise"]
    return ["release"] if claim.holds else []


def may_touch(identity: Identity, claim: ClaimView) -> bool:
    """Whether the user may change a claim: claimants their own, operators any."""
    try:
        require_change(identity, claim)
    except (Forbidden, NotFound):
        return False
    return True


def waiting_groups(identity: Identity, query: ClaimSearch) -> list[PoolQueue]:
    """The waiting claims by pool, in queue order."""
    pools = {pool.name: pool for pool in list_pools(identity.visible_pools())}
    queues = count_waiting()
    wanted = query.keys.get("pool", "")
    names = [n for n in sorted(queues) if n in pools] + [
        n for n in sorted(queues) if n not in pools and identity.visible_pools() is None
    ]
    if wanted:
        names = [n for n in names if n == wanted]
    slots = count_slots(pools[n].pk for n in names if n in pools)
    found = []
    for name in names:
        claims = queue_of_pool(name, limit=ONE_POOL if wanted else EACH)
        pool = pools.get(name)
        rows = [make_row(identity, claim) for claim in claims if may_see(identity, claim)]
        found.append(
            PoolQueue(
                name,
                pool is not None,
                rows,
                queues[name],
                slots.get(pool.pk) if pool else None,
                bool(pool and pool.paused_until),
            )
        )
    return found


def filter_of(identity: Identity, query: ClaimSearch) -> ClaimFilter | None:
    """None: no claim can match, because the pool or member does not exist."""
    keys = query.keys
    wanted = ClaimFilter(
        visible=identity.visible_pools(),
        owner=keys.get("owner"),
        requested_by=keys.get("by"),
        workspace=keys.get("workspace"),
        kind=keys.get("kind"),
        key=keys.get("key"),
        text=query.text or None,
    )
    if "pool" in keys:
        pool = Pool.objects.filter(LIVE, name=keys["pool"]).first()
        if pool is None:
            return None
        wanted = replace(wanted, pool_id=pool.pk)
    if "member" in keys:
        member = Member.objects.filter(
            LIVE, name=keys["member"], **({"pool_id": wanted.pool_id} if wanted.pool_id else {})
        ).first()
        if member is None:
            return None
        wanted = replace(wanted, member_id=member.pk)
    if "state" in keys:
        match = filter_of_class(keys["state"])
        wanted = replace(wanted, states=match.states, steps=match.steps, outcomes=match.outcomes)
    return wanted


def find_rows(
    identity: Identity, query: ClaimSearch, before: int | None
) -> tuple[list[ClaimRow], int | None]:
    wanted = filter_of(identity, query)
    if wanted is None:
        return [], None
    claims = list_claims(wanted, before=before, limit=PAGE + 1, explain=True)
    # The query checks only the first pool of each claim. A claim of several pools is shown only
    # to users that may read all of them.
    shown = [claim for claim in claims[:PAGE] if len(claim.pools) == 1 or may_see(identity, claim)]
    more = claims[PAGE - 1].id if len(claims) > PAGE else None
    return [make_row(identity, claim) for claim in shown], more


@dataclass(frozen=True, slots=True)
class Chip:
    name: str
    count: int
    query: str
    is_current: bool

    @property
    def word(self) -> str:
        return class_word(self.name)

    @property
    def title(self) -> str:
        """The outcomes that the chip stands for."""
        return formatting.sentence(GOOD_OUTCOMES, "or") if self.name == "done" else ""


def chips(identity: Identity, query: ClaimSearch) -> list[Chip]:
    tests, values = in_pools(identity.visible_pools())
    if "pool" in query.keys:
        tests, values = tests + IN_POOL, values | {"pool": query.keys["pool"]}
    counts = count_claims(tests, values)
    shown = [name for name in CHIPS if counts.get(name) or name in ALWAYS or name == query.state]
    return [
        Chip(name, counts.get(name, 0), query.with_state(name), name == query.state)
        for name in shown
    ]


def is_plain_waiting(query: ClaimSearch) -> bool:
    return query.state == "waiting" and not query.text and not set(query.keys) - {"state", "pool"}
