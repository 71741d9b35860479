"""Checks declared members against the stored members."""

from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager

from django.db import IntegrityError, transaction
from psycopg.errors import ExclusionViolation

from pools.config.layout import ports_of
from pools.config.spec import MemberSpec, PoolSpec
from pools.lifecycle.selectors import LIVE, snapshot_member
from pools.models import Member, Pool
from pools.providers.base import known_providers
from project.kernel.errors import FieldError, Invalid
from slots.members.store import port_range


def list_member_faults(
    pool: Pool, spec: PoolSpec, declared: Sequence[MemberSpec], where: str
) -> list[FieldError]:
    """Faults of new members of a pool."""
    there = {m.name: m for m in Member.objects.filter(LIVE, pool=pool)}
    found = []
    for i, member in enumerate(declared):
        if other := there.get(member.name):
            if other.is_leaving:
                message = f"{member.name} is still being removed."
                way_out = "Cancel its removal, or wait until it is gone."
            else:
                message = f"{member.name} exists."
                way_out = "Choose another name, or edit that member."
            found.append(FieldError(f"{where}[{i}].name", message, way_out))
    if len(there) + len(declared) > spec.max_members:
        more = (
            f"The pool has {len(there)} of at most {spec.max_members} members: {len(declared)} "
            "more do not fit."
        )
        found.append(FieldError(where, more, "Raise members.max of the pool, or remove members."))
    return found + list_owned(spec, declared, where) + list_overlaps(spec, declared, where)


def list_owned(
    spec: PoolSpec, declared: Sequence[MemberSpec], where: str, there: Collection[str] = ()
) -> list[FieldError]:
    """Faults of members that name an object which Berth created for another member. `there`: names
    of members that the pool has already.
    """
    provider = known_providers().get(spec.provider)
    if provider is None or not provider.serves_named:
        return []
    named = {
        f"{where}[{i}].external_id": member.external_id
        for i, member in enumerate(declared)
        if member.external_id and member.name not in there
    }
    owned = Member.objects.filter(LIVE, is_owned=True, external_id__in=named.values())
    owners = {member.external_id: member for member in owned.select_related("pool")}
    return [
        FieldError(
            field,
            f"Berth created {external_id} for member {owners[external_id].name} of pool "
            f"{owners[external_id].pool.name}.",
            "Name a load balancer that Berth did not create.",
        )
        for field, external_id in named.items()
        if external_id in owners
    ]


def list_overlaps(
    spec: PoolSpec,
    declared: Sequence[MemberSpec],
    where: str,
    *,
    except_members: Sequence[int] = (),
) -> list[FieldError]:
    """Faults of ports that another member uses on the same load balancer; each names that
    member.
    """
    found = []
    for i, member in enumerate(declared):
        span = ports_of(spec.layout, member.own)
        if not member.external_id or span is None:
            continue
        wanted = port_range(spec, member)
        taken = Member.objects.filter(
            LIVE, external_id=member.external_id, ports__overlap=wanted
        ).exclude(pk__in=except_members)
        other = taken.select_related("pool").order_by("id").first()
        if other is not None:
            theirs = snapshot_member(other).ports or span
            what = f"{span[0]}-{span[1]} on {member.external_id} overlaps {theirs[0]}-{theirs[1]}"
            place = f"{where}[{i}].ports" if where else "ports"
            found.append(
                FieldError(
                    place,
                    f"{what} of {other.name} in pool {other.pool.name}.",
                    "Choose other ports.",
                )
            )
    return found


@contextmanager
def explain_overlap(
    spec: PoolSpec,
    declared: Sequence[MemberSpec],
    where: str,
    *,
    except_members: Sequence[int] = (),
) -> Iterator[None]:
    """Turn a refusal by the database, after a race for ports, into the fault of `list_overlaps`."""
    try:
        with transaction.atomic():
            yield
    except IntegrityError as error:
        if not isinstance(error.__cause__, ExclusionViolation):
            raise
        fields = list_overlaps(spec, declared, where, except_members=except_members)
        raise Invalid(
            fields=fields
            or [FieldError(where, "Its ports overlap those of another member.", "Try again.")]
        ) from error
