"""Pods as members: Berth creates them from the pool's template in one namespace of a cluster,
watches them and deletes them.

The API server is the only source of facts about pods. Labels mark the pods of Berth, and the uid
tells them apart. The client library is imported with the first call to a cluster: a web process
that only reads options would need 40 MB and a second for it.
"""

from collections.abc import Collection, Hashable, Mapping
from functools import cache
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any, ClassVar

from pools.config.fields import Fields
from pools.config.parsing import Faults
from pools.config.spec import turns_agents_off
from pools.providers.base import (
    Follower,
    MemberReport,
    MemberSnapshot,
    Observation,
    PoolSnapshot,
    Provider,
    Tell,
)
from pools.providers.display import OptionForm, ProviderTexts
from pools.providers.kubernetes import display
from pools.providers.kubernetes import options as reading
from pools.providers.kubernetes.listing import observe_pool
from pools.providers.kubernetes.names import installation_of
from pools.providers.kubernetes.reconcile import needs_token, remove_strays, sync_member
from pools.providers.local.provider import find_url
from project.kernel.errors import FieldError
from project.kernel.outbox.operations import Misconfigured, PermanentError

if TYPE_CHECKING:
    from project.kernel.kubernetes.client import Api


class KubernetesProvider(Provider):
    kind: ClassVar[str] = "kubernetes"
    queue: ClassVar[str] = "kubernetes"
    is_owner: ClassVar[bool] = True
    has_agents: ClassVar[bool] = True
    rotates: ClassVar[bool] = True
    option_fields: ClassVar[Fields] = reading.FIELDS
    rolled: ClassVar[tuple[str, ...]] = ("template", "url")
    free_options: ClassVar[tuple[str, ...]] = ("template.resources", "template.grace")
    texts: ClassVar[ProviderTexts] = display.TEXTS
    form: ClassVar[OptionForm | None] = display.FORM

    @classmethod
    def read_options(
        cls, options: Mapping[str, Any], where: str, faults: Faults
    ) -> Mapping[str, Any]:
        return reading.read_options(options, where, faults)

    @classmethod
    def place_of(cls, options: Mapping[str, object]) -> str:
        return f"kubernetes {options.get('context') or 'here'}"

    @classmethod
    def stop_limit(cls, options: Mapping[str, Any]) -> tuple[str, float | None]:
        if turns_agents_off(options):
            return "", None
        return "template.grace", (options.get("template") or {}).get("grace")

    def needs_token(self, pool: PoolSnapshot, member: MemberSnapshot) -> bool:
        return needs_token(api_for(pool), pool, member)

    def check(self, pool: PoolSnapshot) -> list[FieldError]:
        try:
            url = url_of(pool)
        except Misconfigured as error:
            return [FieldError("provider.url", str(error))]
        found: list[FieldError] = load_module("pools.providers.kubernetes.dry_run").check(pool, url)
        return found

    def sync(self, pool: PoolSnapshot, member: MemberSnapshot) -> MemberReport:
        return sync_member(api_for(pool), pool, member, url_of(pool))

    def look(self, pool: PoolSnapshot) -> Observation:
        return observe_pool(api_for(pool), pool)

    def remove_strays(self, pool: PoolSnapshot, member_ids: Collection[int]) -> None:
        remove_strays(api_for(pool), pool, member_ids)

    @classmethod
    def follow_key(cls, options: Mapping[str, object]) -> Hashable:
        return options.get("context", ""), options.get("namespace", "")

    def follow(self, pool: PoolSnapshot, tell: Tell) -> Follower:
        where = {
            name: pool.options[name] for name in ("context", "namespace") if name in pool.options
        }
        follower: Follower = load_module("pools.providers.kubernetes.pod_watch").PodFollower(
            where, installation_of(pool), tell
        )
        return follower


@cache
def load_module(name: str) -> ModuleType:
    return import_module(name)


def api_for(pool: PoolSnapshot) -> "Api":
    found: Api = load_module("project.kernel.kubernetes.client").api_for(pool.options)
    return found


def url_of(pool: PoolSnapshot) -> str:
    """The address of Berth for agents in the pods; empty where no agent runs."""
    url = pool.options.get("url")
    if url or turns_agents_off(pool.options):
        return str(url or "")
    try:
        return find_url()
    except PermanentError:
        raise Misconfigured(
            "The address of Berth for pods is unknown. Set provider.url of the pool, or "
            "BERTH_AGENT_URL for the workers, like https://berth.example.com/."
        ) from None
