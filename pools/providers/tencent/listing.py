"""A full look at a pool: all its load balancers with their listeners, or an error.

Few calls: the load balancers in pages of 100, the targets of 30 load balancers at once, and the
listeners of each load balancer.
"""

from collections.abc import Collection, Mapping, Sequence

from pools.providers.base import MemberSnapshot, Observation, PoolSnapshot, Seen
from pools.providers.tencent.client import (
    LISTENERS_DELETED,
    ClbClient,
    LoadBalancer,
    RegisteredTarget,
    sum_health,
)
from pools.providers.tencent.errors import ListenerMissing, LoadBalancerMissing
from pools.providers.tencent.lifecycle import check_deletable, describe_trouble
from pools.providers.tencent.listeners import Listener, see_slots
from pools.providers.tencent.names import MEMBER, has_tags, number_of, owner_of, pool_tags
from pools.providers.tencent.writes import find_task
from project.kernel.outbox.operations import ProviderError


def observe_pool(client: ClbClient, pool: PoolSnapshot) -> Observation:
    tagged = _list_own(client, pool)
    found = _match(client, pool, tagged)
    if any(member.external_id and member.id not in found for member in pool.members):
        client.check_place(pool)
    health = client.describe_health([each.id for each in found.values() if each.is_active])
    seen: list[Seen] = []
    strays: dict[int, str] = {}
    known = {member.id for member in pool.members}
    for member in pool.members:
        load_balancer = found.get(member.id)
        if load_balancer is None:
            continue
        try:
            listeners = (
                client.describe_listeners(load_balancer.id) if load_balancer.is_active else []
            )
        except LoadBalancerMissing:
            continue  # deleted since it was listed
        doubles = _doubles_of(member, load_balancer, tagged)
        seen.append(
            _see(pool, member, load_balancer, listeners, health.get(load_balancer.id, {}), doubles)
        )
        for listener in listeners:
            owner = owner_of(pool, listener.name, *listener.place)
            if owner and owner not in known:
                strays[owner] = f"listener {listener.id} on {load_balancer.id}"
    for each in tagged:
        owner = number_of(each.tags.get(MEMBER, ""))
        if owner not in known:
            strays[owner] = f"load balancer {each.id}"
    return Observation(tuple(seen), place=client.place, strays=strays)


def _list_own(client: ClbClient, pool: PoolSnapshot) -> list[LoadBalancer]:
    wanted = pool_tags(pool)
    return [each for each in client.list_tagged(wanted) if has_tags(each.tags, wanted)]


def _match(
    client: ClbClient, pool: PoolSnapshot, tagged: Sequence[LoadBalancer]
) -> Mapping[int, LoadBalancer]:
    """The load balancers by member: by the recorded id, or by the tag of the member."""
    by_id = {each.id: each for each in tagged}
    unlisted = [
        member.external_id
        for member in pool.members
        if member.external_id and member.external_id not in by_id
    ]
    by_id |= {each.id: each for each in client.describe_load_balancers(unlisted)}
    by_tag: dict[int, LoadBalancer] = {}
    for each in sorted(tagged, key=lambda each: (each.created, each.id)):
        by_tag.setdefault(number_of(each.tags.get(MEMBER, "")), each)
    found = {}
    for member in pool.members:
        recorded = member.external_id
        match = by_id.get(recorded) if recorded else by_tag.get(member.id)
        if match is not None and (recorded or member.is_owned):
            found[member.id] = match
    return found


def _doubles_of(
    member: MemberSnapshot, found: LoadBalancer, tagged: Sequence[LoadBalancer]
) -> list[str]:
    return [
        each.id
        for each in tagged
        if each.id != found.id and number_of(each.tags.get(MEMBER, "")) == member.id
    ]


def _see(
    pool: PoolSnapshot,
    member: MemberSnapshot,
    found: LoadBalancer,
    listeners: Sequence[Listener],
    health: Mapping[str, Sequence[RegisteredTarget]],
    doubles: Sequence[str],
) -> Seen:
    own = [each for each in listeners if owner_of(pool, each.name, *each.place) == member.id]
    trouble = "" if found.is_active else f"Tencent Cloud provisions {found.id}."
    trouble = trouble or describe_trouble(found)
    # The listeners of a new member come before its first claim; its sync says when.
    is_unfinished = member.state == "creating" and pool.is_precreated
    return Seen(
        member.id,
        is_ready=not trouble and not is_unfinished and member.state != "deleting",
        external_id=found.id,
        why=trouble or _describe_oddity(member, found, doubles),
        addresses=found.addresses,
        slots=see_slots(
            own,
            [each for each in listeners if each not in own],
            {id_: [target.binding for target in targets] for id_, targets in health.items()},
            {id_: sum_health(targets) for id_, targets in health.items()},
        ),
    )


def _describe_oddity(member: MemberSnapshot, found: LoadBalancer, doubles: Sequence[str]) -> str:
    if found.is_blocked:
        return f"Tencent Cloud blocks the address of {found.id}, which is under attack."
    if doubles:
        return f"{', '.join(doubles)} has the tags of this member, too. Delete it."
    # The next sync says whether the task still runs.
    return member.outside if find_task(member.outside) else ""


def remove_strays(client: ClbClient, pool: PoolSnapshot, member_ids: Collection[int]) -> None:
    """Remove the load balancers of gone members, and their listeners on the load balancers of
    others. Raises the first error after it has tried all.
    """
    errors: list[ProviderError] = []
    tagged = _list_own(client, pool)
    for each in tagged:
        if number_of(each.tags.get(MEMBER, "")) in member_ids and each.is_active:
            try:
                _delete_stray(client, pool, each)
            except LoadBalancerMissing:
                continue
            except ProviderError as error:
                errors.append(error)
    for load_balancer in _match(client, pool, tagged).values():
        try:
            _delete_stray_listeners(client, pool, load_balancer.id, member_ids)
        except (LoadBalancerMissing, ListenerMissing):
            continue
        except ProviderError as error:
            errors.append(error)
    if errors:
        raise errors[0]


def _delete_stray(client: ClbClient, pool: PoolSnapshot, stray: LoadBalancer) -> None:
    owner = number_of(stray.tags.get(MEMBER, ""))
    listeners = client.describe_listeners(stray.id)
    foreign = [each for each in listeners if owner_of(pool, each.name, *each.place) != owner]
    check_deletable(pool, stray, len(foreign))
    client.delete_load_balancer(stray.id)


def _delete_stray_listeners(
    client: ClbClient, pool: PoolSnapshot, load_balancer: str, member_ids: Collection[int]
) -> None:
    """One write at a time: further calls follow with the next look."""
    ids = [
        each.id
        for each in client.describe_listeners(load_balancer)
        if owner_of(pool, each.name, *each.place) in member_ids
    ]
    if ids:
        client.delete_listeners(load_balancer, ids[:LISTENERS_DELETED])
