"""Reads about pools and their configuration, and the locks that services begin with."""

import json
from collections.abc import Iterable
from functools import lru_cache
from typing import Any

from django.db.models import Q, QuerySet

from pools.access.claimants import list_claimants
from pools.access.permissions import no_such_pool
from pools.config.layout import Layout, ports_of, step_of
from pools.config.layout_spec import read_own_slots
from pools.config.parsing import Faults
from pools.config.spec import MemberSpec, OptionReader, PoolSpec, read_pool
from pools.installation import name_installation
from pools.models import Member, Pool
from pools.providers.base import MemberSnapshot, PoolSnapshot, SlotSnapshot, known_providers
from project.kernel.errors import Invalid, NotFound

LIVE = ~Q(state="gone")


def list_pools(pool_ids: Iterable[int] | None = None, *, with_gone: bool = False) -> QuerySet[Pool]:
    """Pools in the order of their names. `pool_ids` None: all pools."""
    found = Pool.objects.all() if with_gone else Pool.objects.filter(LIVE)
    if pool_ids is not None:
        found = found.filter(pk__in=list(pool_ids))
    return found.order_by("name")


def find_pool(name: str) -> Pool | None:
    return Pool.objects.filter(LIVE, name=name).first()


def get_pool(name: str) -> Pool:
    pool = find_pool(name)
    if pool is None:
        raise no_such_pool(name)
    return pool


def get_pool_by_id(pool_id: int) -> Pool:
    pool = Pool.objects.filter(pk=pool_id).first()
    if pool is None:
        raise no_such_pool(pool_id)
    return pool


def lock_pool(pool_id: int) -> Pool:
    """The pool with its row lock, the first in the order pool, member, slots. Creating and binding
    claims do not take this lock, and their foreign keys do not conflict with it.
    """
    pool = Pool.objects.select_for_update(no_key=True).filter(pk=pool_id).first()
    if pool is None:
        raise no_such_pool(pool_id)
    return pool


def lock_member(member_id: int) -> tuple[Pool, Member]:
    """The member with its pool, locked in this order."""
    pool_id = Member.objects.filter(pk=member_id).values_list("pool_id", flat=True).first()
    if pool_id is None:
        raise NotFound(
            f"There is no member {member_id}.", way_out="Look at the members of the pool."
        )
    pool = lock_pool(pool_id)
    return pool, Member.objects.select_for_update(no_key=True).get(pk=member_id)


def spec_of(pool: Pool) -> PoolSpec:
    """The parsed stored configuration, without members."""
    return read_stored(pool.name, json.dumps(pool.spec, sort_keys=True))


def layout_of(pool: Pool) -> Layout:
    return spec_of(pool).layout


@lru_cache(maxsize=1024)
def read_stored(name: str, stored: str) -> PoolSpec:
    """A stored configuration was checked before. Its provider may be unknown to this process."""
    config = json.loads(stored)
    kind = str(config.get("provider", {}).get("kind", ""))
    spec, faults = read_pool({**config, "name": name}, {kind: OptionReader()})
    if spec is None:
        raise Invalid(f"The stored configuration of pool {name} is damaged.", fields=faults)
    return spec


def list_members_of(pool_id: int) -> list[Member]:
    """Members that are not gone, in the order in which claims fill them."""
    return list(Member.objects.filter(LIVE, pool_id=pool_id).order_by("position", "id"))


def member_spec_of(member: Member, layout: Layout) -> MemberSpec:
    """The declaration of the member."""
    own = read_own_slots(member.spec, "", layout, Faults())
    return MemberSpec(
        name=member.name,
        labels=member.labels,
        external_id=member.external_id,
        deletion_cost=member.deletion_cost,
        own=own,
    )


def config_of(pool: Pool, *, with_members: bool = True) -> dict[str, Any]:
    """The configuration as in a pool file. It does not list leaving members, or members that
    scaling creates.
    """
    spec = spec_of(pool)
    config = spec.as_config()
    if with_members and spec.scaling is None:
        config["members"]["list"] = [
            member_spec_of(m, spec.layout).as_config()
            for m in list_members_of(pool.pk)
            if not m.is_leaving
        ]
    return config


def snapshot_member(
    member: Member, slots: Iterable[SlotSnapshot] = (), *, is_token_due: bool = False
) -> MemberSnapshot:
    return MemberSnapshot(
        id=member.pk,
        name=member.name,
        state=member.state,
        incarnation=member.incarnation,
        external_id=member.external_id,
        is_owned=member.is_owned,
        labels=member.labels,
        spec=member.spec,
        ports=None if member.ports is None else (member.ports.lower, member.ports.upper - 1),
        slots=tuple(slots),
        is_token_due=is_token_due,
        outside=member.outside,
    )


def snapshot_pool(pool: Pool, members: Iterable[MemberSnapshot] = ()) -> PoolSnapshot:
    provider = known_providers().get(pool.provider)
    spec = spec_of(pool)
    return PoolSnapshot(
        id=pool.pk,
        name=pool.name,
        provider=pool.provider,
        options=spec.options,
        members=tuple(members),
        installation=name_installation(),
        place=pool.place,
        claimants=tuple(list_claimants(pool.pk))
        if provider is not None and provider.runs_here
        else (),
        ports=ports_of(spec.layout),
        segment=step_of(spec.layout),
        is_precreated=spec.layout.ports is not None and bool(spec.layout.ports.precreated),
    )
