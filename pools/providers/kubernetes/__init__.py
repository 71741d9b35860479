"""Pods as members: made from the pool's template in one namespace of a cluster, watched, and taken away again.

Everything that is known of a pod is asked of the API server; what is ours is told by labels, which one by its uid. The client library is
loaded where a cluster is asked and nowhere else: in a web process that reads options it would take 40 MB and a second for nothing.
"""

from collections.abc import Mapping
from functools import cache
from importlib import import_module
from typing import Any, ClassVar

from pools.fields import Faults
from pools.providers.base import Look, MemberReport, MemberSnapshot, PoolSnapshot, Provider
from pools.providers.kubernetes import options as reading
from pools.providers.kubernetes.looking import look_at
from pools.providers.kubernetes.syncing import needs_token, sync_member
from pools.providers.local import find_url
from project.kernel.operations import Misconfigured, PermanentError


class KubernetesProvider(Provider):
    kind: ClassVar[str] = "kubernetes"
    queue: ClassVar[str] = "kubernetes"
    is_owner: ClassVar[bool] = True
    has_agents: ClassVar[bool] = True
    has_memory: ClassVar[bool] = False  # an empty folder is all a new pod has
    option_fields: ClassVar[tuple[str, ...]] = reading.FIELDS
    rolled: ClassVar[tuple[str, ...]] = ("template", "url")

    @classmethod
    def read_options(cls, options: Mapping[str, Any], where: str, faults: Faults) -> Mapping[str, Any]:
        return reading.read_options(options, where, faults)

    def place_of(self, pool: PoolSnapshot) -> str:
        return str(pool.options.get("context") or "in this cluster")

    def needs_token(self, pool: PoolSnapshot, member: MemberSnapshot) -> bool:
        return needs_token(api_for(pool), pool, member)

    def sync(self, pool: PoolSnapshot, member: MemberSnapshot) -> MemberReport:
        return sync_member(api_for(pool), pool, member, url_of(pool))

    def look(self, pool: PoolSnapshot) -> Look:
        return look_at(api_for(pool), pool)


@cache
def load_client() -> Any:
    return import_module("pools.providers.kubernetes.client")


def api_for(pool: PoolSnapshot) -> Any:
    return load_client().api_for(pool.options)


def url_of(pool: PoolSnapshot) -> str:
    """Where its pods find Berth."""
    told = pool.options.get("url")
    if told:
        return str(told)
    try:
        return find_url()
    except PermanentError:
        raise Misconfigured(
            "Nobody says where pods find Berth. Set provider.url of the pool, or BERTH_AGENT_URL for the workers, like https://berth.example.com/."
        ) from None
