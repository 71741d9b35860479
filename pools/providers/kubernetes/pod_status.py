"""The state of a member from the status of its pod, with a reason for people. Pure.

A pod is treated as gone only when the API server does not return it. A pod on a node that does not
answer exists until the cluster deletes it.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Literal

from pools.config.spec import turns_agents_off
from pools.providers.base import MemberSnapshot, PoolSnapshot
from pools.providers.kubernetes.manifests import CONTAINER
from pools.providers.kubernetes.names import (
    INCARNATION,
    external_id_of,
    is_ours,
    number_in,
    pod_name,
)
from project.kernel.kubernetes.objects import Object, is_ending, name_of, uid_of

Kind = Literal["none", "pending", "running", "silent", "ending", "ended", "gone"]
OVERDUE = timedelta(seconds=60)  # a working node confirms a deletion much earlier
LONGEST = 300
# Reasons of pods that the cluster ended.
DISRUPTED = {
    "Evicted", "Preempting", "Preempted", "Terminated", "Shutdown", "NodeShutdown", "NodeLost",
    "NodeAffinity", "TerminationByKubelet", "DeletionByTaintManager", "EvictionByEvictionAPI",
    "DeletionByPodGC", "PreemptionByScheduler",
}  # fmt: skip
EXITS = {
    2: "it could not start with its options",
    3: "its token was refused",
    4: "another agent has its folder",
    126: "its command can't be run",
    127: "its command was not found",
    137: "it was killed",
    139: "it crashed",
    143: "it was ended",
}


@dataclass(frozen=True, slots=True)
class PodCondition:
    kind: Kind
    why: str = ""
    external_id: str = ""
    is_planned: bool = False  # it ended on purpose
    is_ready: bool = False  # the condition Ready: its readiness probes succeed

    @property
    def is_down(self) -> bool:
        """The pod does not run and will not run again."""
        return self.kind in ("ended", "gone")


@dataclass(frozen=True, slots=True)
class MemberPods:
    """Pods of a member: the pod of this incarnation, and older pods to delete."""

    current: Object | None = None
    older: tuple[Object, ...] = ()
    # Pods with Berth's labels that replaced a pod of Berth.
    foreign: tuple[Object, ...] = ()
    odd: str = ""  # a fault of the current pod, for people


def sort_pods(pods: Iterable[Object], pool: PoolSnapshot, member: MemberSnapshot) -> MemberPods:
    """Sort pods by the recorded uid. Without a recorded uid (the answer of the create was lost) the
    labels identify the pod.
    """
    name, uid = recorded(member)
    wanted = pod_name(pool, member)
    is_recorded = name == wanted
    current, older, foreign = None, list[Object](), list[Object]()
    for pod in pods:
        if not is_ours(pod, pool, member):
            continue
        if name_of(pod) == name and uid and uid_of(pod) != uid:
            foreign.append(pod)
        elif name_of(pod) == wanted and (
            is_recorded or number_in(pod, INCARNATION) == member.incarnation
        ):
            current = pod
        elif is_recorded and not is_ending(pod):
            foreign.append(pod)  # Berth deletes its older pods before it creates a new one
        else:
            older.append(pod)
    return MemberPods(current, tuple(older), tuple(foreign))


def recorded(member: MemberSnapshot) -> tuple[str, str]:
    """Name and uid of the last pod that Berth created."""
    name, _, uid = member.external_id.partition("/")
    return name, uid


def judge(
    member_pods: MemberPods, pool: PoolSnapshot, member: MemberSnapshot, now: datetime
) -> PodCondition:
    if member_pods.current is not None:
        return judge_pod(member_pods.current, now, was_ready=member.state != "creating")
    name, _ = recorded(member)
    if member.state == "creating" and name != pod_name(pool, member):
        return PodCondition("none")
    if member_pods.foreign:
        other = member_pods.foreign[0]
        what = (
            f"Pod {name_of(other)} was replaced by a foreign pod with its name and labels (uid "
            f"{uid_of(other)}), which Berth leaves alone"
        )
        return PodCondition("gone", what, member.external_id)
    return PodCondition(
        "gone",
        f"Pod {name or pod_name(pool, member)} is gone: deleted outside Berth, or with its node",
        member.external_id,
    )


def is_member_ready(found: PodCondition, pool: PoolSnapshot, member: MemberSnapshot) -> bool:
    """Without an agent the condition Ready of the pod decides. With an agent its heartbeats do: the
    first makes a new member ready, and later a pod that may run counts as ready.
    """
    if turns_agents_off(pool.options):
        return found.kind == "running" and found.is_ready
    return member.state != "creating" and found.kind in ("running", "pending", "silent")


def describe_readiness(found: PodCondition, pool: PoolSnapshot, member: MemberSnapshot) -> str:
    """The wait reason of a member with a running pod; empty: the member is ready."""
    if found.kind != "running":
        return ""
    if turns_agents_off(pool.options):
        return "" if found.is_ready else "its pod runs and is not ready"
    return "its agent has not connected yet" if member.state == "creating" else ""


def judge_pod(pod: Object, now: datetime, *, was_ready: bool) -> PodCondition:
    status: Object = pod.get("status") or {}
    phase, outside = str(status.get("phase") or "Pending"), external_id_of(pod)
    ended = _ended(status)
    if phase in ("Failed", "Succeeded") or ended:
        is_planned = was_ready and (
            _is_disrupted(pod) or phase == "Succeeded" or (ended or {}).get("exitCode") == 0
        )
        return PodCondition("ended", _clip(_why_ended(pod, phase, ended)), outside, is_planned)
    if is_ending(pod):
        return PodCondition("ending", _clip(_why_ending(pod, now)), outside)
    if phase == "Running":
        is_ready = _find_condition(status, "Ready") is not None
        return PodCondition("running", "", outside, is_ready=is_ready)
    if phase == "Pending":
        return PodCondition("pending", _clip(_why_pending(pod)), outside)
    return PodCondition("silent", _clip(f"its node {_node(pod)} does not answer"), outside)


def _why_pending(pod: Object) -> str:
    status: Object = pod.get("status") or {}
    if waits := _find_condition(status, "PodScheduled", "False"):
        return _describe_reason(waits, "Unschedulable")
    for container in (
        *(status.get("initContainerStatuses") or ()),
        *(status.get("containerStatuses") or ()),
    ):
        waiting = (container.get("state") or {}).get("waiting") or {}
        if waiting.get("reason") not in (None, "", "ContainerCreating", "PodInitializing"):
            return _describe_reason(waiting)
    if status.get("reason") or status.get("message"):
        return _describe_reason(status, "Pending")
    has_node = (pod.get("spec") or {}).get("nodeName")
    return "it is being started" if has_node else "it waits for a node"


def _why_ended(pod: Object, phase: str, ended: Object | None) -> str:
    status: Object = pod.get("status") or {}
    what = f"Pod {name_of(pod)} "
    if status.get("reason"):
        return f"{what}ended: {_describe_reason(status)}"
    if disrupted := _find_condition(status, "DisruptionTarget"):
        return f"{what}ended: {_describe_reason(disrupted, 'disrupted')}"
    if ended is None:
        return f"{what}{'has ended' if phase == 'Succeeded' else 'failed'}"
    code = ended.get("exitCode")
    if ended.get("reason") == "OOMKilled":
        return f"{what}was ended: out of memory. Raise its memory limit"
    words = f"{what}ended with {code}"
    if isinstance(code, int) and code in EXITS:
        words += f": {EXITS[code]}"
    return f"{words} ({ended['message']})" if ended.get("message") else words


def _why_ending(pod: Object, now: datetime) -> str:
    until = read_moment(pod["metadata"].get("deletionTimestamp"))
    if until is not None and now - until > OVERDUE:
        for_long = int((now - until).total_seconds() // 60)
        return (
            f"Pod {name_of(pod)} should have been gone for {for_long} min, and its node "
            f"{_node(pod)} does not confirm it. Bring the node back, or remove it from the cluster"
        )
    return f"Pod {name_of(pod)} is being ended"


def read_moment(text: object) -> datetime | None:
    try:
        return datetime.fromisoformat(str(text).replace("Z", "+00:00")) if text else None
    except ValueError:
        return None


def _ended(status: Object) -> Object | None:
    """The end of Berth's container. A sidecar may still run."""
    for container in status.get("containerStatuses") or ():
        if container.get("name") == CONTAINER:
            found: Object | None = (container.get("state") or {}).get("terminated")
            return found
    return None


def _is_disrupted(pod: Object) -> bool:
    status: Object = pod.get("status") or {}
    is_target = _find_condition(status, "DisruptionTarget") is not None
    return is_ending(pod) or is_target or status.get("reason") in DISRUPTED


def _find_condition(status: Object, kind: str, value: str = "True") -> Object | None:
    for condition in status.get("conditions") or ():
        if condition.get("type") == kind and condition.get("status") == value:
            found: Object = condition
            return found
    return None


def _node(pod: Object) -> str:
    return str((pod.get("spec") or {}).get("nodeName") or "(none)")


def _describe_reason(found: Object, usual: str = "") -> str:
    """The reason with its message. `usual` stands for a missing reason."""
    reason, message = found.get("reason") or usual, found.get("message")
    return f"{reason}: {' '.join(str(message).split())}" if message else str(reason)


def _clip(text: str) -> str:
    return text if len(text) <= LONGEST else f"{text[: LONGEST - 1]}…"
