"""A full look at a pool: all its pods in one list, or an error."""

from collections import defaultdict
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from pools.providers.base import MemberSnapshot, Observation, PoolSnapshot, Seen
from pools.providers.kubernetes.cluster_identity import find_place
from pools.providers.kubernetes.names import MEMBER, number_in, select_pool
from pools.providers.kubernetes.pod_status import (
    MemberPods,
    describe_readiness,
    is_member_ready,
    judge,
    sort_pods,
)
from pools.providers.kubernetes.unlisted_pods import complete, list_strays
from project.kernel.kubernetes.objects import Object, name_of

if TYPE_CHECKING:
    from project.kernel.kubernetes.client import Api


def observe_pool(api: "Api", pool: PoolSnapshot) -> Observation:
    listed = api.list_pods(select_pool(pool))
    pods: dict[int, list[Object]] = defaultdict(list)
    for pod in listed:
        pods[number_in(pod, MEMBER)].append(pod)
    strays = {number_in(pod, MEMBER): f"pod {name_of(pod)}" for pod in list_strays(listed, pool)}
    if not pods:
        api.check_namespace()  # a missing namespace has an empty list, too
    place = find_place(api, pool, listed)
    now = datetime.now(UTC)
    found = [
        observe_member(
            complete(api, sort_pods(pods.get(member.id, ()), pool, member), pool, member),
            pool,
            member,
            now,
        )
        for member in pool.members
    ]
    return Observation(
        tuple(seen for seen in found if seen is not None), strays=strays, place=place
    )


def observe_member(
    member_pods: MemberPods, pool: PoolSnapshot, member: MemberSnapshot, now: datetime
) -> Seen | None:
    """None: the member is being deleted, and its pods are gone."""
    if member.state == "deleting" and member_pods.current is None and not member_pods.older:
        return None
    found = judge(member_pods, pool, member, now)
    if member.state == "deleting":
        return Seen(member.id, is_ready=False, external_id=found.external_id, why=found.why)
    return Seen(
        member.id,
        is_ready=is_member_ready(found, pool, member),
        external_id=found.external_id,
        why=found.why or member_pods.odd or describe_readiness(found, pool, member),
        is_down=found.is_down,
        is_planned=found.is_planned,
        is_lost=found.is_down,
        is_ending=found.kind == "ending",
    )
