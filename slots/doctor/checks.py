"""Doctor checks of pools, members and slots: I8 open slots, I9 places, I10 empty members, I11
number of members, I16m timers, I19 differences outside, I24 looks, I26 agents of this machine, I40
allowed providers, I41 protection of tasks, I42 slots outside.
"""

from collections.abc import Iterator
from functools import partial

from django.conf import settings

from pools.access.claimants import list_claimants
from pools.config.layout import Layout
from pools.lifecycle.selectors import LIVE, list_members_of, list_pools, member_spec_of, spec_of
from pools.models import Member, Pool
from pools.providers.base import explain_not_allowed, kinds_with, known_providers
from pools.providers.local.agent_folder import agents_home, member_of, remove
from pools.providers.local.protection import WAY_OUT, find_protection, why_refused
from project.kernel.db.sql import run
from project.kernel.doctor.checks import operation_limits
from project.kernel.doctor.registry import Finding, check, fact
from project.kernel.outbox.operations import ProviderError
from slots.members.offer import SharedPorts, places_offered
from slots.members.selectors import snapshot_whole
from slots.members.services import align_member
from slots.sync.drift import GONE_FOUND, UNKNOWN_FOUND, UNKNOWN_THEN, list_slot_drift
from slots.sync.orders import repair_slot
from slots.sync.strays import sort_strays
from slots.sync.watcher import LOOK_EVERY, call_provider, observe_pool

TIMER_LIMIT = 60.0
LOOK_LIMIT = 2 * LOOK_EVERY + 60.0  # two looks, and time for a slow look


def list_operation_limits() -> dict[int, float]:
    """Seconds that an operation of a pool may stay open: as long as its slots may drain."""
    return {
        pool.pk: max(TIMER_LIMIT, spec_of(pool).drain_limit) for pool in list_pools() if pool.queue
    }


operation_limits.append(list_operation_limits)

WRONGLY_OPEN = """
SELECT m.id, m.name, p.name AS pool, count(*) FILTER (WHERE s.is_open) AS open,
  count(*) FILTER (WHERE NOT s.is_open) AS closed
FROM slots_slot s JOIN pools_member m ON m.id = s.member_id JOIN pools_pool p ON p.id = m.pool_id
WHERE s.is_open <> (p.state = 'active' AND coalesce(p.paused_until, p.frozen_until) IS NULL
  AND m.state = 'ready'
                    AND NOT m.is_cordoned AND NOT m.is_leaving AND s.state <> 'retired'
                    AND NOT EXISTS (SELECT FROM slots_quarantine q WHERE q.slot_id = s.id))
  AND coalesce(p.unaligned_at, 'epoch') < now() - interval '1 min'  -- else the finalizer is at work
GROUP BY 1, 2, 3 ORDER BY 1 LIMIT 1000"""

PLACES = (
    "SELECT lane, number, state, claim_id FROM slots_slot WHERE member_id = %(member)s "
    "AND state <> 'retired'"
)

NOT_EMPTY = """
SELECT m.id, m.name, p.name AS pool, m.state, count(*) FILTER (WHERE s.is_open) AS open,
  count(*) FILTER (WHERE s.state NOT IN ('idle', 'retired')) AS occupied,
  array_agg(s.claim_id ORDER BY s.claim_id) FILTER (WHERE s.claim_id IS NOT NULL) AS claims
FROM pools_member m JOIN pools_pool p ON p.id = m.pool_id JOIN slots_slot s ON s.member_id = m.id
WHERE m.state IN ('deleting', 'gone') AND (s.is_open OR s.state NOT IN ('idle', 'retired'))
  GROUP BY m.id, p.id ORDER BY m.id LIMIT 1000"""

# The maximum of a scaled pool may become less than it has: busy members stay until they are idle.
TOO_MANY = """
SELECT p.name, p.max_members, count(*) AS n FROM pools_pool p
  JOIN pools_member m ON m.pool_id = p.id
WHERE m.state <> 'gone' AND p.state <> 'gone' GROUP BY p.id HAVING count(*) > p.max_members
  AND (p.spec->'scaling' IS NULL OR max(m.created_at) > p.changed_at)
ORDER BY p.name"""

OLD_TIMERS = """
SELECT what, id, age FROM (
  SELECT 'member' AS what, id, extract(epoch FROM now() - due_at)::float8 AS age FROM pools_member
    WHERE due_at IS NOT NULL
  UNION ALL
  SELECT 'slot', id, extract(epoch FROM now() - due_at)::float8 FROM slots_slot
    WHERE due_at IS NOT NULL AND state = 'draining') x
WHERE age > %(limit)s::float8 ORDER BY age DESC LIMIT 1000"""

NOT_OBSERVED = """
SELECT name, extract(epoch FROM now() - coalesce(observed_at, created_at))::float8 AS age
  FROM pools_pool
WHERE state IN ('pending', 'active')
  AND coalesce(observed_at, created_at) < now() - make_interval(secs => %(limit)s::float8)
ORDER BY name"""


@check(
    "I8",
    "A slot is open exactly when its pool and its member take claims",
    "A bind relies on it and reads neither of them.",
)
def find_wrongly_open() -> Iterator[Finding]:
    for row in run(WRONGLY_OPEN, prepare=False):
        what = [f"{row.open} open that should be closed"] * bool(row.open) + [
            f"{row.closed} closed that should be open"
        ] * bool(row.closed)
        repair = "--repair opens or closes the slots as pool and member require."
        yield Finding(
            f"member {row.name} of pool {row.pool}",
            ", ".join(what),
            repair,
            partial(align_member, member_id=row.id),
        )


@check(
    "I9",
    "A member offers the places it was declared with",
    "A surplus place is never cleaned, a missing place is lost capacity.",
)
def find_wrong_places() -> Iterator[Finding]:
    for pool in list_pools().exclude(state="deleting"):
        layout, shared = spec_of(pool).layout, SharedPorts(pool.provider)
        for member in list_members_of(pool.pk):
            if member.lost_at is None and member.state != "deleting":
                yield from _compare_places(pool.name, member, layout, shared)


def _compare_places(
    pool: str, member: Member, layout: Layout, shared: SharedPorts
) -> Iterator[Finding]:
    found = run(PLACES, {"member": member.pk}, prepare=False)
    rows = {(row.lane, row.number): row.claim_id for row in found}
    states = {(row.lane, row.number): row.state for row in found}
    own = member_spec_of(member, layout).own
    declared = set(places_offered(member, layout, own, states, shared))
    missing, more = declared - set(rows), set(rows) - declared
    if not missing and not more:
        return
    held = [claim for place, claim in rows.items() if place in more and claim is not None]
    detail = f"{len(missing)} missing, {len(more)} not declared"
    repair = "--repair adds missing slots and retires free slots that are not declared."
    if held:
        repair = f"Release the claims {', '.join(map(str, sorted(held)[:10]))} first."
    fix = None if held else partial(align_member, member_id=member.pk)
    yield Finding(f"member {member.name} of pool {pool}", detail, repair, fix)


@check(
    "I10",
    "A member that leaves has no open and no occupied slot",
    "The member is being removed under a claim, or could still get one.",
)
def find_members_not_empty() -> Iterator[Finding]:
    for row in run(NOT_EMPTY, prepare=False):
        detail = f"{row.state}, with {row.open} open and {row.occupied} occupied slots"
        repair = "--repair closes the open slots."
        if row.claims:
            repair = (
                f"Release the claims {', '.join(map(str, row.claims[:10]))}; their slots no longer "
                "exist."
            )
        fix = partial(align_member, member_id=row.id) if row.open else None
        yield Finding(f"member {row.name} of pool {row.pool}", detail, repair, fix)


@check(
    "I11",
    "A pool has at most members.max members",
    "The limit stands for costs, or for the available machines.",
)
def find_too_many() -> Iterator[Finding]:
    for row in run(TOO_MANY, prepare=False):
        yield Finding(
            f"pool {row.name}",
            f"{row.n} members, at most {row.max_members}",
            "Raise members.max, or remove members.",
        )


@check(
    "I16m",
    "No timer of a member or a draining slot is older than a minute",
    "The finalizer does not run, or fails for this row.",
)
def find_old_timers() -> Iterator[Finding]:
    for row in run(OLD_TIMERS, {"limit": TIMER_LIMIT}, prepare=False):
        yield Finding(
            f"{row.what} {row.id}",
            f"due {row.age:.0f} s ago",
            "Check that the finalizer runs; its log has the error.",
        )


@check(
    "I19",
    "The objects outside equal the members of the pool",
    "A member without an object serves no claim; an object without a member only costs money.",
)
def find_differences_outside() -> Iterator[Finding]:
    for pool in list_pools().filter(state="active"):
        before = snapshot_whole(pool)
        try:
            look = call_provider(before)
        except ProviderError as error:
            yield Finding(
                f"pool {pool.name}",
                f"its provider cannot be read: {error}",
                "Check that the provider answers, and the rights of its account.",
            )
            continue
        rows = {member.id: member for member in before.members}
        seen = {each.member_id: each for each in look.seen}
        again = partial(observe_pool, pool)
        for member in rows.values():
            if member.id not in seen and member.state in ("ready", "offline"):
                yield Finding(
                    f"member {member.name} of pool {pool.name}",
                    "missing outside",
                    "--repair looks again and marks the member as lost.",
                    again,
                )
            elif member.state == "ready" and not seen[member.id].is_ready:
                why = seen[member.id].why or "its provider says it is not ready"
                yield Finding(
                    f"member {member.name} of pool {pool.name}",
                    f"not ready outside: {why}",
                    "--repair takes the member offline.",
                    again,
                )
        gone, unknown = sort_strays(look.strays)
        for name in sorted(gone.values()):
            yield Finding(
                f"{name} of pool {pool.name}",
                GONE_FOUND,
                "--repair looks again and removes it, unless an agent still runs there (I26).",
                again,
            )
        for name in sorted(unknown.values()):
            yield Finding(
                f"{name} of pool {pool.name}",
                UNKNOWN_FOUND,
                UNKNOWN_THEN,
            )


@check(
    "I24",
    "Each pool had a recent look at its provider",
    "Without a recent full look, gone members are not noticed and no member is scaled in.",
)
def find_not_observed() -> Iterator[Finding]:
    for row in run(NOT_OBSERVED, {"limit": LOOK_LIMIT}, prepare=False):
        repair = "Check that `watch` runs; its log has the errors of the provider."
        yield Finding(f"pool {row.name}", f"not looked at for {row.age:.0f} s", repair)


@check(
    "I26",
    "Each agent of this machine has its member",
    "An agent without a member is refused and only takes memory; a restore may leave such agents.",
)
def find_agents_without_members() -> Iterator[Finding]:
    folders = sorted(agents_home().glob("*.*")) if agents_home().is_dir() else []
    known = set(
        Member.objects.filter(
            LIVE, pk__in=[member_of(folder) or 0 for folder in folders]
        ).values_list("pk", flat=True)
    )
    for folder in folders:
        if member_of(folder) not in known:
            yield Finding(
                str(folder),
                "belongs to no member",
                "--repair ends its processes and removes the folder.",
                partial(remove, folder),
            )


@check(
    "I40",
    "Each pool's provider may be used in this installation",
    (
        "BERTH_ALLOWED_PROVIDERS lists the kinds that may be used. A pool of another kind keeps "
        "its members and takes no new ones."
    ),
)
def find_providers_not_allowed() -> Iterator[Finding]:
    if unknown := sorted(set(settings.BERTH_ALLOWED_PROVIDERS) - set(known_providers())):
        detail = f"names {', '.join(unknown)}, which are not providers"
        yield Finding(
            "BERTH_ALLOWED_PROVIDERS", detail, f"Known: {', '.join(sorted(known_providers()))}."
        )
    for pool in list_pools():
        if (fault := explain_not_allowed(pool.provider)) is not None:
            yield Finding(
                f"pool {pool.name}", f"{fault.message} It takes no new members.", fault.way_out
            )


@fact
def describe_protection() -> str:
    return f"Tasks on this machine: {find_protection().words}" if list_pools_here() else ""


@check(
    "I41",
    "Tasks on this machine cannot read Berth's own passwords and keys",
    (
        "Any user with the right to claim could read the database and become an admin. Agents are "
        "not started until this is fixed."
    ),
)
def find_unprotected() -> Iterator[Finding]:
    for pool in list_pools_here():
        if refused := why_refused(find_protection(), list_claimants(pool.pk)):
            yield Finding(f"pool {pool.name}", refused, WAY_OUT)


def list_pools_here() -> list[Pool]:
    """Pools with tasks that run on Berth's own machine."""
    return list(list_pools().filter(provider__in=kinds_with(lambda provider: provider.runs_here)))


@check(
    "I42",
    "Slots exist outside as their rows say",
    (
        "A claim holds a slot whose outside object is missing or cannot serve, or an object "
        "without a claim, or one that is not Berth's, is in the place of a slot. The last look or "
        "sync of the provider found this."
    ),
)
def find_slot_drift() -> Iterator[Finding]:
    for each in list_slot_drift():
        fix = None
        if each.may_repair and each.slot_id is not None:
            fix = partial(repair_slot, slot_id=each.slot_id, reason="doctor --repair")
        what = f"slot {each.where} of member {each.member} of pool {each.pool}"
        yield Finding(what, each.found, each.then, fix)
