"""A full look at the load balancers of a pool, in few calls.

A look lists the load balancers and target groups of the region, and the listeners of each load
balancer of the pool. Tags of objects rarely change, so they are read again after ten minutes only;
a sync reads them each time. Targets take a call for each group: a look reads those that were read
longest ago, and reports the other listeners as `unread`. A recorded load balancer that the list
lacks is read by its ARN before it counts as gone.
"""

import threading
import time
from collections.abc import Collection, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field

from pools.providers.aws.account import Account, Tags
from pools.providers.aws.errors import ServerFault
from pools.providers.aws.inventory import (
    NetworkBalancer,
    PortListener,
    SeenTarget,
    get_balancer,
    list_balancers,
    list_groups,
    list_listeners,
    mark_ours,
    read_targets,
    see_slot,
)
from pools.providers.aws.names import member_in
from pools.providers.aws.reconcile import check_place
from pools.providers.base import MemberSnapshot, Observation, PoolSnapshot, Seen
from pools.providers.server_faults import MOST_IN_VAIN
from project.kernel.outbox.operations import Misconfigured, NotFoundOutside, ProviderError

TAGS_AGE = 600.0  # seconds
BALANCER = "load balancer "  # before the name of a stray
TARGETS_A_LOOK = 100


@dataclass
class LookMemory:
    """What earlier looks at one place have read. Looks at several pools run in threads."""

    tags: dict[str, tuple[Tags, float]] = field(default_factory=dict)  # with the time of reading
    targets_at: dict[str, float] = field(default_factory=dict)  # by group
    lock: threading.Lock = field(default_factory=threading.Lock)

    def read_tags(self, account: Account, arns: Iterable[str]) -> Mapping[str, Tags]:
        wanted, now = list(arns), time.monotonic()
        with self.lock:
            self.tags = {
                arn: entry for arn, entry in self.tags.items() if now - entry[1] < TAGS_AGE
            }
            known = {arn: self.tags[arn][0] for arn in wanted if arn in self.tags}
        fresh = account.read_tags(arn for arn in wanted if arn not in known)
        with self.lock:
            self.tags |= {arn: (tags, now) for arn, tags in fresh.items()}
        return known | fresh

    def choose_groups(self, groups: Iterable[str]) -> list[str]:
        """The groups whose targets this look reads."""
        with self.lock:
            in_order = sorted(groups, key=lambda arn: self.targets_at.get(arn, 0.0))
            chosen = in_order[:TARGETS_A_LOOK]
            self.targets_at |= dict.fromkeys(chosen, time.monotonic())
        return chosen

    def forget_targets(self, known: Iterable[str]) -> None:
        """Keep the times of groups that exist in the region."""
        with self.lock:
            kept = self.targets_at.keys() & set(known)
            self.targets_at = {arn: self.targets_at[arn] for arn in kept}


_memories: dict[str, LookMemory] = {}


def forget_looks() -> None:
    """For tests."""
    _memories.clear()


def observe_pool(account: Account, pool: PoolSnapshot) -> Observation:
    check_place(account, pool)
    memory = _memories.setdefault(account.place, LookMemory())
    try:
        return _observe(account, pool, memory)
    except NotFoundOutside as error:
        raise ProviderError(f"An object was removed during the look: {error}") from error


def _observe(account: Account, pool: PoolSnapshot, memory: LookMemory) -> Observation:
    balancers = {each.arn: each for each in list_balancers(account)}
    balancers |= _read_unlisted(account, pool, balancers)
    tags = memory.read_tags(account, balancers)
    made = {arn: member_in(tags[arn], pool) for arn in balancers}
    groups = list_groups(account)
    memory.forget_targets(each.arn for each in groups)
    group_tags = memory.read_tags(account, (each.arn for each in groups))
    places = {
        member.id: balancer
        for member in pool.members
        if (balancer := _find(member, balancers, made)) is not None
    }
    listeners = {
        member_id: _list_listeners(account, pool, memory, balancer, member_id)
        for member_id, balancer in places.items()
    }
    ours = {
        each.group for found in listeners.values() for each in found if each.is_ours and each.group
    }
    known = {each.arn for each in groups}
    targets = _read_targets(account, memory.choose_groups(sorted(ours & known)))
    strays = {
        member: f"{BALANCER}{balancers[arn].name}"
        for arn, member in made.items()
        if member is not None
    }
    for group in groups:
        if (member_id := member_in(group_tags[group.arn], pool)) is not None:
            strays.setdefault(member_id, f"target group {group.name}")
    for found in listeners.values():
        for listener in found:
            if listener.owner is not None:
                strays.setdefault(listener.owner, f"listener {listener.number}")
    members = {member.id: member for member in pool.members}
    return Observation(
        seen=tuple(
            _see(members[member_id], balancer, listeners[member_id], targets)
            for member_id, balancer in places.items()
        ),
        place=account.place,
        strays={member: name for member, name in strays.items() if member not in members},
    )


def _read_targets(account: Account, groups: Iterable[str]) -> dict[str, tuple[SeenTarget, ...]]:
    """The targets of these groups. A server error leaves its group unread; without any success it
    ends the look.
    """
    found, failures = dict[str, tuple[SeenTarget, ...]](), list[ServerFault]()
    for arn in groups:
        try:
            found[arn] = read_targets(account, arn)
        except ServerFault as error:
            failures.append(error)
            if not found and len(failures) >= MOST_IN_VAIN:
                break
    if failures and not found:
        raise failures[0]
    return found


def _read_unlisted(
    account: Account, pool: PoolSnapshot, listed: Collection[str]
) -> dict[str, NetworkBalancer]:
    """Recorded load balancers that the list lacks: one incomplete list proves no end."""
    found: dict[str, NetworkBalancer] = {}
    for member in pool.members:
        if not member.external_id or member.external_id in listed:
            continue
        # The checks of the pool name a wrong ARN; the look goes on with the other members.
        with suppress(Misconfigured):
            if (balancer := get_balancer(account, member.external_id)) is not None:
                found[balancer.arn] = balancer
    return found


def _find(
    member: MemberSnapshot,
    balancers: Mapping[str, NetworkBalancer],
    made: Mapping[str, int | None],
) -> NetworkBalancer | None:
    if member.external_id in balancers:
        return balancers[member.external_id]
    if not member.is_owned or (member.external_id and member.state != "creating"):
        return None
    return next((balancers[arn] for arn in sorted(made) if made[arn] == member.id), None)


def _list_listeners(
    account: Account,
    pool: PoolSnapshot,
    memory: LookMemory,
    balancer: NetworkBalancer,
    member_id: int,
) -> list[PortListener]:
    found = list_listeners(account, balancer.arn)
    tags = memory.read_tags(account, (each.arn for each in found))
    return [mark_ours(each, member_in(tags[each.arn], pool), member_id) for each in found]


def _see(
    member: MemberSnapshot,
    balancer: NetworkBalancer,
    listeners: Iterable[PortListener],
    targets: Mapping[str, tuple[SeenTarget, ...]],
) -> Seen:
    return Seen(
        member.id,
        is_ready=balancer.is_live,
        external_id=balancer.arn,
        why=balancer.why,
        addresses=balancer.addresses,
        slots=tuple(see_slot(each, targets.get(each.group)) for each in listeners),
    )
