"""A member's pod and Secret are made equal to its rows. Each function may be called twice or late;
what it does not see confirmed, it does not say."""

from collections.abc import Collection
from datetime import UTC, datetime
from typing import Any, Protocol

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

SOON = 2.0  # seconds until another look at what should be done in a moment
# Seconds for a pod in which nothing runs any more, whatever its template gives one that works.
EMPTY_GRACE = 30
PATIENCE = 30.0  # where the watch tells us before, and this is for when it does not


class Cluster(Protocol):
    """What is asked of an API server; see client.Api."""

    namespace: str
    place: str
    server: str

    def check_namespace(self) -> str: ...
    def list_pods(self, selector: str) -> list[Object]: ...
    def get_pod(self, name: str) -> Object | None: ...
    def create_pod(self, manifest: Object, *, is_dry: bool = False) -> Object: ...
    def delete_pod(self, pod: Object, grace: int | None = None) -> None: ...
    def get_secret(self, name: str) -> Object | None: ...
    def create_secret(self, manifest: Object, *, is_dry: bool = False) -> Object: ...
    def patch_secret(self, secret: Object, change: Any) -> Object: ...
    def delete_secret(self, secret: Object) -> None: ...


def needs_token(api: Cluster, pool: PoolSnapshot, member: MemberSnapshot) -> bool:
    """Its pod is to be made, and there is no Secret yet that an earlier try left for it; or the
    one it has is to be replaced.
    """
    if turns_agents_off(pool.options):
        return False
    if member.is_token_due and member.state == "ready":
        return True
    if member.state != "creating" or recorded(member)[0] == pod_name(pool, member):
        return False
    check_place(api, pool)  # else each try would get one
    return api.get_secret(pod_name(pool, member)) is None


def sync_member(api: Cluster, pool: PoolSnapshot, member: MemberSnapshot, url: str) -> MemberReport:
    mine = sort_pods(api.list_pods(select_member(pool, member)), pool, member)
    if mine.current is None:
        check_place(api, pool)
        mine = complete(api, mine, pool, member)
    if member.state == "deleting":
        refuse_unlabelled(mine)
        return remove(api, pool, member, mine)
    if member.token and member.state != "creating" and mine.current is not None:
        deliver_token(api, pool, member, mine.current)
    if (
        member.state == "creating"
        and mine.current is None
        and recorded(member)[0] != pod_name(pool, member)
    ):
        return start(api, pool, member, mine, url)
    if member.state == "creating" and mine.current is not None:
        adopt_secret(api, pool, member, mine.current)
    return report(mine, pool, member)


def report(mine: MemberPods, pool: PoolSnapshot, member: MemberSnapshot) -> MemberReport:
    found = judge(mine, pool, member, datetime.now(UTC))
    draining = frozenset(slot.id for slot in member.slots if slot.state == "draining")
    if found.is_down:
        # Its folder went with it: who is started next knows nothing.
        return MemberReport(
            clean=draining,
            external_id=found.external_id,
            down=found.why,
            is_planned=found.is_planned,
            is_lost=True,
        )
    why = found.why or mine.odd or describe_readiness(found, pool, member)
    return MemberReport(
        # An agent reports its slots clean. Without one, a released slot is clean.
        clean=draining if turns_agents_off(pool.options) else frozenset(),
        is_ready=is_member_ready(found, pool, member),
        external_id=found.external_id,
        why=why,
        again=PATIENCE,
    )


# -- in --------------------------------------------------------------------------------------------


def start(
    api: Cluster, pool: PoolSnapshot, member: MemberSnapshot, mine: MemberPods, url: str
) -> MemberReport:
    """Older incarnations go first. One that should have gone long ago is on a node that does not
    answer: its token opens nothing, and what it ran has been called lost, so it holds nobody up."""
    if any(is_newer(pod, member) for pod in mine.older):
        raise ConflictError(
            f"A later incarnation of {member.name} runs in {api.place} than the one that is to be "
            "made. It is left alone."
        )
    for pod in mine.older:
        if not is_ending(pod):
            api.delete_pod(pod)
    if member.incarnation > 1:
        remove_secret(api, pool, member, member.incarnation - 1)
    if mine.older and any(is_in_the_way(api.get_pod(name_of(pod)), pod) for pod in mine.older):
        return MemberReport(why="the pod before it is being ended", again=SOON)
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
    """Whoever knows less than the cluster was frozen for long, or has an old copy of the
    database: he ends nothing that may be at work.
    """
    return (
        number_in(pod, INCARNATION) > member.incarnation
        and not judge_pod(pod, datetime.now(UTC), was_ready=False).is_down
    )


def create_pod(api: Cluster, pool: PoolSnapshot, member: MemberSnapshot, url: str) -> Object:
    try:
        return api.create_pod(pod_manifest(pool, member, api.namespace, url))
    except AlreadyExists:
        there = api.get_pod(pod_name(pool, member))
        if there is None:
            raise
        if is_ours(there, pool, member) and number_in(there, INCARNATION) == member.incarnation:
            return there  # an earlier try made it, and its answer was lost
        what = (
            f"The name {pod_name(pool, member)} is taken in {api.place} by a pod that is not ours "
            f"(uid {uid_of(there)})."
        )
        raise ConflictError(
            f"{what} It is left alone: remove it, or give the member another name."
        ) from None


def is_in_the_way(found: Object | None, pod: Object) -> bool:
    """Of an older pod that was asked to go: whether to wait for it."""
    if found is None or uid_of(found) != uid_of(pod):
        return False
    until = read_moment(found["metadata"].get("deletionTimestamp"))
    return until is None or datetime.now(UTC) - until <= OVERDUE


# -- out -------------------------------------------------------------------------------------------


def remove(
    api: Cluster, pool: PoolSnapshot, member: MemberSnapshot, mine: MemberPods
) -> MemberReport:
    """The token first: a pod in the cluster means that somebody looks again. Gone is what the
    server does not know any more.
    """
    for incarnation in {member.incarnation, max(1, member.incarnation - 1)}:
        remove_secret(api, pool, member, incarnation)
    pods = [*mine.older, *([mine.current] if mine.current is not None else [])]
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


def remove_strays(api: Cluster, pool: PoolSnapshot, member_ids: Collection[int]) -> None:
    """Of members that are gone. Each by its uid, with the Secret of its name."""
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
    """Somebody gave it long to end while it was at work. A second word makes that shorter,
    never longer.
    """
    until = read_moment(pod["metadata"].get("deletionTimestamp"))
    return until is not None and (until - datetime.now(UTC)).total_seconds() > 2 * EMPTY_GRACE


# -- the token -------------------------------------------------------------------------------------


def write_secret(api: Cluster, pool: PoolSnapshot, member: MemberSnapshot) -> None:
    """Before its pod, which would wait for it. An earlier try may have left one: its token is
    good for this incarnation.
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


def deliver_token(api: Cluster, pool: PoolSnapshot, member: MemberSnapshot, pod: Object) -> None:
    """To a pod that runs: the kubelet puts it into the mounted file within a minute or so, and the
    agent reads that when its old token is refused."""
    try:
        write_token(api, pool, member)
    except SecretGone:
        api.create_secret(secret_manifest(pool, member, api.namespace, pod))


def write_token(api: Cluster, pool: PoolSnapshot, member: MemberSnapshot) -> None:
    secret = api.get_secret(pod_name(pool, member))
    if secret is None:
        raise SecretGone(f"There is no Secret {pod_name(pool, member)} in {api.place} any more.")
    if not is_ours(secret, pool, member):
        what = (
            f"The name {pod_name(pool, member)} is taken in {api.place} by a Secret "
            "that is not ours."
        )
        raise ConflictError(f"{what} It is left alone: remove it, or give the member another name.")
    api.patch_secret(secret, {"data": token_data(member.token)})


class SecretGone(ProviderError):
    pass


def adopt_secret(api: Cluster, pool: PoolSnapshot, member: MemberSnapshot, pod: Object) -> None:
    """From now on it goes with its pod, whoever deletes that."""
    secret = find_secret(api, pool, pod_name(pool, member))
    if secret is None or not is_ours(secret, pool, member):
        return
    if not any(
        owner.get("uid") == uid_of(pod) for owner in secret["metadata"].get("ownerReferences") or ()
    ):
        api.patch_secret(secret, {"metadata": {"ownerReferences": [owner_reference(pod)]}})


def find_secret(api: Cluster, pool: PoolSnapshot, name: str) -> Object | None:
    """None also in a pool without agents: it has no Secrets, and needs no right to read them."""
    return None if turns_agents_off(pool.options) else api.get_secret(name)


def remove_secret(
    api: Cluster, pool: PoolSnapshot, member: MemberSnapshot, incarnation: int
) -> None:
    secret = find_secret(api, pool, pod_name(pool, member, incarnation))
    if secret is not None and is_ours(secret, pool, member):
        api.delete_secret(secret)
