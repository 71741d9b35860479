"""A pod that its list does not name may be there all the same: its labels can be changed by
anybody. Before it is called gone it is asked for by its name, and known by the uid that was
written down."""

from collections.abc import Iterable
from dataclasses import replace
from typing import Protocol

from pools.providers.base import MemberSnapshot, PoolSnapshot
from pools.providers.kubernetes.names import MEMBER, is_ours, number_in, pod_name
from pools.providers.kubernetes.pod_status import MemberPods, recorded
from project.kernel.kubernetes.objects import Object, uid_of
from project.kernel.outbox.operations import ConflictError


class PodReader(Protocol):
    def get_pod(self, name: str) -> Object | None: ...


def complete(
    api: PodReader, mine: MemberPods, pool: PoolSnapshot, member: MemberSnapshot
) -> MemberPods:
    name, uid = recorded(member)
    wanted = pod_name(pool, member)
    if mine.current is not None or mine.foreign or not uid or name != wanted:
        return mine
    there = api.get_pod(wanted)
    if there is None or uid_of(there) != uid:
        return mine
    odd = (
        ""
        if is_ours(there, pool, member)
        else f"somebody has changed the labels of pod {wanted}: put those of Berth back"
    )
    return replace(mine, current=there, odd=odd)


def list_strays(pods: Iterable[Object], pool: PoolSnapshot) -> list[Object]:
    """Of members that the pool has not. A label may say so of a pod that we know by its uid: it
    was changed.
    """
    members, uids = (
        {member.id for member in pool.members},
        {recorded(member)[1] for member in pool.members},
    )
    return [
        pod
        for pod in pods
        if number_in(pod, MEMBER) not in members | {0} and uid_of(pod) not in uids
    ]


def refuse_unlabelled(mine: MemberPods) -> None:
    """What does not carry our labels is not deleted, and not called gone either."""
    if mine.odd:
        raise ConflictError(
            f"{mine.odd[0].upper()}{mine.odd[1:]}, or delete it. It is left alone until then."
        )
