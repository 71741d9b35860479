"""Pods that the list by labels misses, because labels can be changed. Berth reads a missing pod by
its name and compares the recorded uid before the pod counts as gone.
"""

from collections.abc import Iterable
from dataclasses import replace
from typing import TYPE_CHECKING

from pools.providers.base import MemberSnapshot, PoolSnapshot
from pools.providers.kubernetes.names import MEMBER, is_ours, number_in, pod_name
from pools.providers.kubernetes.pod_status import MemberPods, recorded
from project.kernel.kubernetes.objects import Object, uid_of
from project.kernel.outbox.operations import ConflictError

if TYPE_CHECKING:
    from project.kernel.kubernetes.client import Api


def complete(
    api: "Api", member_pods: MemberPods, pool: PoolSnapshot, member: MemberSnapshot
) -> MemberPods:
    name, uid = recorded(member)
    wanted = pod_name(pool, member)
    if member_pods.current is not None or member_pods.foreign or not uid or name != wanted:
        return member_pods
    there = api.get_pod(wanted)
    if there is None or uid_of(there) != uid:
        return member_pods
    is_labelled = is_ours(there, pool, member)
    odd = "" if is_labelled else f"the labels of pod {wanted} were changed: restore those of Berth"
    return replace(member_pods, current=there, odd=odd)


def list_strays(pods: Iterable[Object], pool: PoolSnapshot) -> list[Object]:
    """Pods of members that the pool does not have. A pod with a recorded uid is none of them: its
    label was changed.
    """
    members = {member.id for member in pool.members}
    uids = {recorded(member)[1] for member in pool.members}
    return [
        pod
        for pod in pods
        if number_in(pod, MEMBER) not in members | {0} and uid_of(pod) not in uids
    ]


def refuse_unlabelled(member_pods: MemberPods) -> None:
    """Raises ConflictError for a pod without Berth's labels: Berth neither deletes it nor calls it
    gone.
    """
    if fault := member_pods.odd:
        raise ConflictError(f"{fault[0].upper()}{fault[1:]}, or delete the pod.")
