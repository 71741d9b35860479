"""Creates, adopts and deletes load balancers.

CreateLoadBalancer carries the tags and a token of the member, so that a repeated call finds what an
earlier call made: first by the tags, then by the token. A load balancer that was deleted before its
member was ready is created again, with another token. Deletion takes own listeners first, and a
load balancer with foreign listeners stays.
"""

import time
from dataclasses import replace

from pools.providers.base import MemberReport, MemberSnapshot, PoolSnapshot
from pools.providers.tencent.client import ClbClient, LoadBalancer
from pools.providers.tencent.create_request import create_request
from pools.providers.tencent.errors import LoadBalancerMissing, NoAnswer
from pools.providers.tencent.names import creation_of, has_tags, member_tags, pool_tags
from pools.providers.tencent.reconcile import SOON, ListenerSync
from pools.providers.tencent.writes import LoadBalancerWriter, StillRunning
from project.kernel.outbox.operations import (
    ConflictError,
    Misconfigured,
    NotFoundOutside,
    Postponed,
    ProviderError,
)

PROVISIONING_WAIT = 3.0  # seconds that a worker waits for a new load balancer
PROVISIONING_POLL = 0.5
PROVISIONING_AGAIN = 5.0  # seconds until the next call
# Seconds after its creation, or after it was listed last, in which a load balancer that is not
# listed counts as late and not as deleted.
UNLISTED = 60.0


def sync_member(client: ClbClient, pool: PoolSnapshot, member: MemberSnapshot) -> MemberReport:
    if member.state == "deleting":
        return delete_member(client, pool, member)
    if member.state == "creating":
        return create_member(client, pool, member)
    if not member.external_id:
        raise NotFoundOutside(f"The load balancer of {member.name} was never recorded.")
    return sync_listeners(client, pool, member)


def sync_listeners(client: ClbClient, pool: PoolSnapshot, member: MemberSnapshot) -> MemberReport:
    work = ListenerSync(client, pool, member, member.external_id)
    try:
        work.run()
    except LoadBalancerMissing:
        client.check_place(pool)
        raise
    return work.report()


def create_member(client: ClbClient, pool: PoolSnapshot, member: MemberSnapshot) -> MemberReport:
    found = _find_or_create(client, pool, member)
    if isinstance(found, MemberReport):
        return found
    until = time.monotonic() + PROVISIONING_WAIT
    while not found.is_active:
        if time.monotonic() + PROVISIONING_POLL > until:
            return _waiting(f"Tencent Cloud provisions {found.id}.", found.id)
        time.sleep(PROVISIONING_POLL)
        found = _describe(client, found.id) or found
    if why := describe_trouble(found):
        return _waiting(why, found.id)
    work = ListenerSync(client, pool, replace(member, external_id=found.id), found.id)
    work.run()
    report = work.report()
    is_ready = report.failure is None and (work.is_complete or not pool.is_precreated)
    if is_ready:
        client.journal.end(_creation_key(client, pool, member))
    return replace(report, is_ready=is_ready, addresses=found.addresses)


def _find_or_create(
    client: ClbClient, pool: PoolSnapshot, member: MemberSnapshot
) -> LoadBalancer | MemberReport:
    """The load balancer, or a report while it is not listed yet."""
    if not member.is_owned:
        return _find_named(client, pool, member)
    key, journal = _creation_key(client, pool, member), client.journal
    if found := _find_made(client, pool, member):
        journal.begin(key, UNLISTED)
        return found
    client.check_place(pool)  # else another account could get the new load balancer
    if member.external_id and journal.find(key) is not None:
        why = f"Tencent Cloud does not list {member.external_id}. If it stays so, Berth creates "
        return _waiting(f"{why}another load balancer within a minute.", member.external_id)
    journal.begin(key, UNLISTED)
    try:
        task = client.create_load_balancer(create_request(pool, member))
    except NoAnswer:
        raise  # the load balancer may appear
    except (ProviderError, Postponed):
        journal.end(key)
        raise
    ids = task.ids
    if not ids:  # the cloud may name the load balancer later
        _, _, ids = client.task_status(task.id)
    if not ids:
        return _waiting("Tencent Cloud has accepted the order for a load balancer.", "")
    listed = _describe(client, ids[0])
    return listed or _waiting(f"Tencent Cloud provisions {ids[0]}.", ids[0])


def _creation_key(client: ClbClient, pool: PoolSnapshot, member: MemberSnapshot) -> str:
    """Names the creation of a member's load balancer in the journal."""
    return f"tencent {client.account} create {creation_of(pool, member)}"


def _find_made(
    client: ClbClient, pool: PoolSnapshot, member: MemberSnapshot
) -> LoadBalancer | None:
    """The load balancer that earlier calls created."""
    if member.external_id and (found := _describe(client, member.external_id)):
        return found
    made = find_tagged(client, pool, member)
    _delete_doubles(client, pool, made[1:])
    return next(iter(made), None)


def _find_named(client: ClbClient, pool: PoolSnapshot, member: MemberSnapshot) -> LoadBalancer:
    """A load balancer of the user. Raises if it is missing, or of no use."""
    name = member.external_id
    if not name:
        raise Misconfigured(
            f"Member {member.name} names no load balancer. Add it with the id of one, like lb-1a2b."
        )
    found = _describe(client, name)
    if found is None:
        client.check_place(pool)
        raise Misconfigured(
            f"The region {client.region} has no load balancer {name} for this account. Check its "
            "id, and the region of the pool."
        )
    if found.is_classic:
        raise Misconfigured(
            f"{name} is a classic load balancer, which cannot serve a pool. Name an application "
            "load balancer."
        )
    return found


def find_tagged(
    client: ClbClient, pool: PoolSnapshot, member: MemberSnapshot
) -> list[LoadBalancer]:
    """The load balancers that earlier calls created for this member, oldest first."""
    wanted = member_tags(pool, member)
    found = [each for each in client.list_tagged(wanted) if has_tags(each.tags, wanted)]
    return sorted(found, key=lambda each: (each.created, each.id))


def _describe(client: ClbClient, load_balancer: str) -> LoadBalancer | None:
    return next(iter(client.describe_load_balancers([load_balancer])), None)


def describe_trouble(found: LoadBalancer) -> str:
    """Why an active load balancer serves no traffic; empty: it does."""
    if found.is_isolated:
        return f"{found.id} is isolated, because the account is in arrears. Top it up."
    return ""


def _waiting(why: str, external_id: str) -> MemberReport:
    return MemberReport(external_id=external_id, why=why, again=PROVISIONING_AGAIN)


def _delete_doubles(client: ClbClient, pool: PoolSnapshot, doubles: list[LoadBalancer]) -> None:
    """A member under creation has no claims, so its second load balancer serves none."""
    for each in doubles:
        if each.is_active and not client.describe_listeners(each.id):
            client.delete_load_balancer(each.id)


def delete_member(client: ClbClient, pool: PoolSnapshot, member: MemberSnapshot) -> MemberReport:
    if member.external_id:
        found = client.describe_load_balancers([member.external_id])
    else:
        found = find_tagged(client, pool, member) if member.is_owned else []
    for each in found:
        try:
            report = _remove(client, pool, replace(member, external_id=each.id), each)
        except LoadBalancerMissing:
            continue  # another program deleted it meanwhile
        if report is not None:
            return report
    if not found and member.external_id:
        client.check_place(pool)
    draining = frozenset(slot.id for slot in member.slots if slot.state == "draining")
    return MemberReport(clean=draining, is_gone=True, external_id=member.external_id)


def _remove(
    client: ClbClient, pool: PoolSnapshot, member: MemberSnapshot, found: LoadBalancer
) -> MemberReport | None:
    """Remove the member's objects. None: all are gone from this load balancer. Raises if not."""
    if not found.is_active and member.is_owned:
        return _waiting(f"Tencent Cloud provisions {found.id}, then Berth deletes it.", found.id)
    work = ListenerSync(client, pool, member, found.id)
    work.run()
    report = work.report()
    if not work.is_complete:
        return replace(report, is_ready=False)
    if not member.is_owned:
        return None
    check_deletable(pool, found, len(work.plan.foreign))
    try:
        LoadBalancerWriter(client, found.id).write(
            "deletes the load balancer", lambda: client.delete_load_balancer(found.id)
        )
    except StillRunning as pause:
        return replace(report, is_ready=False, why=str(pause), again=SOON)
    if _describe(client, found.id) is None:
        return None
    why = f"Tencent Cloud deletes {found.id}."
    return replace(report, is_ready=False, why=why, again=PROVISIONING_AGAIN)


def check_deletable(pool: PoolSnapshot, found: LoadBalancer, foreign: int) -> None:
    """Raises ConflictError if the load balancer is not this pool's alone."""
    if not has_tags(found.tags, pool_tags(pool)):
        raise ConflictError(
            f"{found.id} has lost the tags of this pool, so Berth does not delete it. Put back "
            f"{', '.join(f'{name}={value}' for name, value in pool_tags(pool).items())}, or delete "
            "the load balancer."
        )
    if foreign:
        raise ConflictError(
            f"{found.id} has {foreign} listeners that Berth did not create for this member, so "
            "Berth does not delete it. Delete them, or the load balancer."
        )
