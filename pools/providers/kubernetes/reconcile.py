"""Make the pod and the Secret of a member equal to its rows. Each function may be called twice or
late, and reports only confirmed facts.
"""

from collections.abc import Collection
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from pools.config.spec import turns_agents_off
from pools.providers.base import MemberReport, MemberSnapshot, PoolSnapshot
from pools.providers.kubernetes.cluster_identity import check_place
from pools.providers.kubernetes.manifests import (
    owner_reference,
    pod_manifest,
    secret_manifest,
    token_data,
)
from pools.providers.kubernetes.names import (
    INCARNATION,
    INSTALLATION,
    MEMBER,
    external_id_of,
    installation_of,
    is_ours,
    number_in,
    pod_name,
    select_member,
    select_pool,
)
from pools.providers.kubernetes.pod_status import (
    OVERDUE,
    MemberPods,
    describe_readiness,
    is_member_ready,
    judge,
    judge_pod,
    read_moment,
    recorded,
    sort_pods,
)
from pools.providers.kubernetes.unlisted_pods import complete, list_strays, refuse_unlabelled
from project.kernel.kubernetes.errors import AlreadyExists
from project.kernel.kubernetes.objects import Object, is_ending, name_of, uid_of
from project.kernel.outbox.operations import ConflictError, ProviderError

if TYPE_CHECKING:  # the import would load the client library
    from project.kernel.kubernetes.client import Api

SOON = 2.0  # seconds until the next sync when an effect is expected in a moment
# Seconds of grace for a pod without a task, in place of the grace of the template.
EMPTY_GRACE = 30
PATIENCE = 30.0  # seconds until the next sync if the watch reports no change


def needs_token(api: "Api", pool: PoolSnapshot, member: MemberSnapshot) -> bool:
    """True: the pod does not exist yet and no Secret of an earlier attempt exists, or the token is
    due for renewal.
    """
    if turns_agents_off(pool.options):
        return False
    if member.is_token_due and member.state == "ready":
        return True
    if member.state != "creating" or recorded(member)[0] == pod_name(pool, member):
        return False
    check_place(api, pool)  # else each attempt would get a token
    return api.get_secret(pod_name(pool, member)) is None


def sync_member(api: "Api", pool: PoolSnapshot, member: MemberSnapshot, url: str) -> MemberReport:
    member_pods = sort_pods(api.list_pods(select_member(pool, member)), pool, member)
    if member_pods.current is None:
        check_place(api, pool)
        member_pods = complete(api, member_pods, pool, member)
    if member.state == "deleting":
        refuse_unlabelled(member_pods)
        return remove(api, pool, member, member_pods)
    if member.token and member.state != "creating" and member_pods.current is not None:
        deliver_token(api, pool, member, member_pods.current)
    if (
        member.state == "creating"
        and member_pods.current is None
        and recorded(member)[0] != pod_name(pool, member)
    ):
        return start(api, pool, member, member_pods, url)
    if member.state == "creating" and member_pods.current is not None:
        adopt_secret(api, pool, member, member_pods.current)
    return report(member_pods, pool, member)


def report(member_pods: MemberPods, pool: PoolSnapshot, member: MemberSnapshot) -> MemberReport:
    found = judge(member_pods, pool, member, datetime.now(UTC))
    draining = frozenset(slot.id for slot in member.slots if slot.state == "draining")
    if found.is_down:
        # The folder of the agent is lost with the pod.
        return MemberReport(
            clean=draining,
            external_id=found.external_id,
            down=found.why,
            is_planned=found.is_planned,
            is_lost=True,
        )
    why = found.why or member_pods.odd or describe_readiness(found, pool, member)
    return MemberReport(
        # An agent reports its slots clean. Without one, a released slot is clean.
        clean=draining if turns_agents_off(pool.options) else frozenset(),
        is_ready=is_member_ready(found, pool, member),
        external_id=found.external_id,
        why=why,
        again=PATIENCE,
    )


# -- create ----------------------------------------------------------------------------------------


def start(
    api: "Api", pool: PoolSnapshot, member: MemberSnapshot, member_pods: MemberPods, url: str
) -> MemberReport:
    """Delete pods of older incarnations, then create the pod. An overdue deletion is on a node that
    does not answer. It delays no new pod: its token is void, and its work counts as lost.
    """
    if any(is_newer(pod, member) for pod in member_pods.older):
        raise ConflictError(
            f"{api.place[0].upper()}{api.place[1:]} has a pod of a later incarnation of "
            f"{member.name}. Berth leaves it alone."
        )
    for pod in member_pods.older:
        if not is_ending(pod):
            api.delete_pod(pod)
    if member.incarnation > 1:
        remove_secret(api, pool, member, member.incarnation - 1)
    if any(is_in_the_way(api.get_pod(name_of(pod)), pod) for pod in member_pods.older):
        return MemberReport(why="its previous pod is ending", again=SOON)
    if not turns_agents_off(pool.options):
        write_secret(api, pool, member)
    pod = create_pod(api, pool, member, url)
    adopt_secret(api, pool, member, pod)
    return MemberReport(
        external_id=external_id_of(pod),
        why=judge_pod(pod, datetime.now(UTC), was_ready=False).why,
        again=PATIENCE,
    )


def is_newer(pod: Object, member: MemberSnapshot) -> bool:
    """True: the pod works and belongs to a later incarnation. This worker was frozen for long, or
    uses an old copy of the database, so it must not delete the pod.
    """
    return (
        number_in(pod, INCARNATION) > member.incarnation
        and not judge_pod(pod, datetime.now(UTC), was_ready=False).is_down
    )


def create_pod(api: "Api", pool: PoolSnapshot, member: MemberSnapshot, url: str) -> Object:
    try:
        return api.create_pod(pod_manifest(pool, member, api.namespace, url))
    except AlreadyExists:
        there = api.get_pod(pod_name(pool, member))
        if there is None:
            raise
        if is_ours(there, pool, member) and number_in(there, INCARNATION) == member.incarnation:
            return there  # of an earlier attempt that lost its answer
        raise ConflictError(
            f"The name {pod_name(pool, member)} is taken in {api.place} by a pod that is not "
            f"Berth's (uid {uid_of(there)}). Remove that pod, or give the member another name."
        ) from None


def is_in_the_way(found: Object | None, pod: Object) -> bool:
    """Whether a new pod waits for the deletion of this older pod."""
    if found is None or uid_of(found) != uid_of(pod):
        return False
    until = read_moment(found["metadata"].get("deletionTimestamp"))
    return until is None or datetime.now(UTC) - until <= OVERDUE


# -- delete ----------------------------------------------------------------------------------------


def remove(
    api: "Api", pool: PoolSnapshot, member: MemberSnapshot, member_pods: MemberPods
) -> MemberReport:
    """Delete the Secrets first: a remaining pod causes the next sync. A pod is gone only when the
    API server does not return it.
    """
    for incarnation in {member.incarnation, max(1, member.incarnation - 1)}:
        remove_secret(api, pool, member, incarnation)
    pods = [*member_pods.older, *([member_pods.current] if member_pods.current is not None else [])]
    for pod in pods:
        if not is_ending(pod) or is_far(pod):
            api.delete_pod(pod, EMPTY_GRACE)
    left = [
        there
        for pod in pods
        if (there := api.get_pod(name_of(pod))) is not None and uid_of(there) == uid_of(pod)
    ]
    if not left:
        return MemberReport(is_gone=True)
    return MemberReport(
        external_id=external_id_of(left[-1]),
        why=judge_pod(left[-1], datetime.now(UTC), was_ready=True).why,
        again=PATIENCE,
    )


def remove_strays(api: "Api", pool: PoolSnapshot, member_ids: Collection[int]) -> None:
    """Delete the pods of gone members by their uid, each with the Secret of its name."""
    for pod in list_strays(api.list_pods(select_pool(pool)), pool):
        if number_in(pod, MEMBER) not in member_ids or is_ending(pod):
            continue
        secret = find_secret(api, pool, name_of(pod))
        if secret is not None and secret["metadata"].get("labels", {}).get(
            INSTALLATION
        ) == installation_of(pool):
            api.delete_secret(secret)
        api.delete_pod(pod)


def is_far(pod: Object) -> bool:
    """The pod got a long grace while it worked. A second delete shortens the grace and never
    extends it.
    """
    until = read_moment(pod["metadata"].get("deletionTimestamp"))
    return until is not None and (until - datetime.now(UTC)).total_seconds() > 2 * EMPTY_GRACE


# -- the token -------------------------------------------------------------------------------------


def write_secret(api: "Api", pool: PoolSnapshot, member: MemberSnapshot) -> None:
    """Write the Secret before the pod, which would wait for it. A Secret of an earlier attempt
    holds a valid token of this incarnation.
    """
    if not member.token:
        if api.get_secret(pod_name(pool, member)) is None:
            raise ProviderError(
                f"There is no token yet for incarnation {member.incarnation} of {member.name}."
            )
        return
    try:
        api.create_secret(secret_manifest(pool, member, api.namespace))
    except AlreadyExists:
        write_token(api, pool, member)


def deliver_token(api: "Api", pool: PoolSnapshot, member: MemberSnapshot, pod: Object) -> None:
    """Give a new token to a running pod. The kubelet updates the mounted file within about a
    minute, and the agent reads it when its old token is refused.
    """
    try:
        write_token(api, pool, member)
    except SecretGone:
        api.create_secret(secret_manifest(pool, member, api.namespace, pod))


def write_token(api: "Api", pool: PoolSnapshot, member: MemberSnapshot) -> None:
    secret = api.get_secret(pod_name(pool, member))
    if secret is None:
        raise SecretGone(f"The Secret {pod_name(pool, member)} in {api.place} is gone.")
    if not is_ours(secret, pool, member):
        raise ConflictError(
            f"The name {pod_name(pool, member)} is taken in {api.place} by a Secret that is not "
            "Berth's. Remove that Secret, or give the member another name."
        )
    api.patch_secret(secret, {"data": token_data(member.token)})


class SecretGone(ProviderError):
    pass


def adopt_secret(api: "Api", pool: PoolSnapshot, member: MemberSnapshot, pod: Object) -> None:
    """Make the pod the owner of its Secret, so that the cluster deletes both together."""
    secret = find_secret(api, pool, pod_name(pool, member))
    if secret is None or not is_ours(secret, pool, member):
        return
    if not any(
        owner.get("uid") == uid_of(pod) for owner in secret["metadata"].get("ownerReferences") or ()
    ):
        api.patch_secret(secret, {"metadata": {"ownerReferences": [owner_reference(pod)]}})


def find_secret(api: "Api", pool: PoolSnapshot, name: str) -> Object | None:
    """None also in a pool without agents, which needs no right to read Secrets."""
    return None if turns_agents_off(pool.options) else api.get_secret(name)


def remove_secret(api: "Api", pool: PoolSnapshot, member: MemberSnapshot, incarnation: int) -> None:
    secret = find_secret(api, pool, pod_name(pool, member, incarnation))
    if secret is not None and is_ours(secret, pool, member):
        api.delete_secret(secret)
