"""What a pod's status means for its member, and how it is described."""

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from pools.providers.base import MemberSnapshot, PoolSnapshot
from pools.providers.kubernetes.names import labels_of, pod_name
from pools.providers.kubernetes.pod_status import MemberPods, judge, judge_pod, sort_pods

NOW = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)
POOL = PoolSnapshot(7, "infra", "kubernetes")
MEMBER = MemberSnapshot(5, "m1", "ready")


def pod(
    status: dict[str, Any] | None = None,
    *,
    uid: str = "u1",
    member: MemberSnapshot = MEMBER,
    **meta: Any,
) -> dict[str, Any]:
    metadata = {
        "name": pod_name(POOL, member),
        "uid": uid,
        "labels": labels_of(POOL, member),
        **meta,
    }
    return {
        "metadata": metadata,
        "spec": {"nodeName": "n1"},
        "status": status or {"phase": "Running"},
    }


def agent(**state: Any) -> dict[str, Any]:
    return {"containerStatuses": [{"name": "agent", "state": state}]}


UNSCHEDULABLE = {
    "type": "PodScheduled",
    "status": "False",
    "reason": "Unschedulable",
    "message": "0/3 nodes are available.",
}


@pytest.mark.parametrize(
    ("status", "kind", "words"),
    [
        (
            {"phase": "Pending", "conditions": [UNSCHEDULABLE]},
            "pending",
            "Unschedulable: 0/3 nodes are available.",
        ),
        (
            {
                "phase": "Pending",
                **agent(waiting={"reason": "ImagePullBackOff", "message": "no such image"}),
            },
            "pending",
            "ImagePullBackOff: no",
        ),
        (
            {"phase": "Pending", **agent(waiting={"reason": "ContainerCreating"})},
            "pending",
            "it is being started",
        ),
        ({"phase": "Running"}, "running", ""),
        ({"phase": "Running", **agent(terminated={"exitCode": 1})}, "ended", "ended with 1"),
        (
            {"phase": "Failed", **agent(terminated={"exitCode": 137, "reason": "OOMKilled"})},
            "ended",
            "out of memory",
        ),
        (
            {"phase": "Failed", **agent(terminated={"exitCode": 3})},
            "ended",
            "its token was refused",
        ),
        (
            {"phase": "Failed", "reason": "Evicted", "message": "low on memory"},
            "ended",
            "Evicted: low on memory",
        ),
        ({"phase": "Succeeded"}, "ended", "has ended"),
        ({"phase": "Unknown"}, "silent", "n1 does not answer"),
        ({"phase": "Odd"}, "silent", "does not answer"),
        ({}, "running", ""),
    ],
    ids=[
        "no node",
        "no image",
        "creating",
        "running",
        "beside",
        "memory",
        "token",
        "evicted",
        "succeeded",
        "unknown",
        "odd",
        "default",
    ],
)
def test_each_pod_phase_is_described(status: dict[str, Any], kind: str, words: str) -> None:
    found = judge_pod(pod(status), NOW, was_ready=True)
    assert (found.kind, words in found.why) == (kind, True), found
    assert found.external_id == f"{pod_name(POOL, MEMBER)}/u1"


def test_terminating_pod_is_not_down_however_late() -> None:
    found = judge_pod(pod(deletionTimestamp="2026-03-01T12:00:30Z"), NOW, was_ready=True)
    assert (found.kind, found.is_down) == ("ending", False)
    late = judge_pod(pod(deletionTimestamp="2026-03-01T11:00:00Z"), NOW, was_ready=True)
    assert (late.kind, late.is_down) == ("ending", False)
    assert "60 min" in late.why
    assert "node n1 does not confirm" in late.why


@pytest.mark.parametrize(
    ("status", "was_ready", "planned"),
    [
        ({"phase": "Failed", "reason": "Evicted"}, True, True),
        ({"phase": "Failed", "reason": "Evicted"}, False, False),
        ({"phase": "Failed", **agent(terminated={"exitCode": 1})}, True, False),
        ({"phase": "Succeeded"}, True, True),
        ({"phase": "Succeeded"}, False, False),
        (
            {
                "phase": "Failed",
                "conditions": [
                    {
                        "type": "DisruptionTarget",
                        "status": "True",
                        "reason": "PreemptionByScheduler",
                    }
                ],
            },
            True,
            True,
        ),
    ],
    ids=[
        "evicted",
        "evicted before its first word",
        "failed",
        "succeeded",
        "succeeded before its first word",
        "preempted",
    ],
)
def test_ends_outside_the_pod_s_control_count_as_planned(
    status: dict[str, Any], was_ready: bool, planned: bool
) -> None:
    """A pod that never became ready is restarted with growing delays, after any kind of end."""
    assert judge_pod(pod(status), NOW, was_ready=was_ready).is_planned is planned


def test_long_messages_are_truncated() -> None:
    message = "x" * 5000
    assert (
        len(
            judge_pod(
                pod({"phase": "Failed", "reason": "Evicted", "message": message}),
                NOW,
                was_ready=True,
            ).why
        )
        <= 300
    )


NAME = pod_name(POOL, MEMBER)
SECOND = replace(MEMBER, incarnation=2, state="creating")


def test_missing_pod_is_gone_only_if_it_was_created() -> None:
    assert judge(MemberPods(), POOL, replace(MEMBER, external_id=f"{NAME}/u1"), NOW).kind == "gone"
    assert judge(MemberPods(), POOL, replace(MEMBER, state="creating"), NOW).kind == "none"
    assert (
        judge(
            MemberPods(), POOL, replace(MEMBER, state="creating", external_id=f"{NAME}/u1"), NOW
        ).kind
        == "gone"
    )
    assert judge(MemberPods(), POOL, replace(SECOND, external_id=f"{NAME}/u1"), NOW).kind == "none"


def test_pod_with_another_uid_is_foreign_whatever_its_labels() -> None:
    mine = sort_pods([pod(uid="u2")], POOL, replace(MEMBER, external_id=f"{NAME}/u1"))
    assert mine.current is None
    assert len(mine.foreign) == 1
    assert "u2" in judge(mine, POOL, replace(MEMBER, external_id=f"{NAME}/u1"), NOW).why


def test_pod_without_a_recorded_uid_is_adopted_by_its_labels() -> None:
    assert sort_pods([pod()], POOL, MEMBER).current is not None


def test_pods_of_earlier_incarnations_are_sorted_as_older_or_foreign() -> None:
    older = pod()
    before = sort_pods([older], POOL, replace(SECOND, external_id=f"{NAME}/u1"))
    assert (before.older, before.current, before.foreign) == ((older,), None, ())
    made = replace(SECOND, external_id=f"{pod_name(POOL, SECOND)}/u9")
    after = sort_pods([older, pod(uid="u9", member=SECOND)], POOL, made)
    assert (after.older, len(after.foreign)) == ((), 1)
    assert after.current is not None
    ending = sort_pods([pod(deletionTimestamp="2026-03-01T12:00:00Z")], POOL, made)
    assert len(ending.older) == 1


def test_pods_of_another_installation_are_ignored() -> None:
    strange = pod()
    strange["metadata"]["labels"] = {
        **strange["metadata"]["labels"],
        "berth.dev/installation": "another",
    }
    assert sort_pods([strange], POOL, MEMBER) == MemberPods()
