"""Declared members against what is there: what stands against them, in words, and what a
configuration makes of them.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from django.db import IntegrityError, transaction
from psycopg.errors import ExclusionViolation

from pools.config.layout import ports_of
from pools.config.spec import MemberSpec, PoolSpec
from pools.lifecycle.selectors import LIVE, snapshot_member
from pools.models import Member, Pool
from project.kernel.errors import FieldError, Invalid
from slots.members.store import port_range


def list_member_faults(
    pool: Pool, spec: PoolSpec, declared: Sequence[MemberSpec], where: str
) -> list[FieldError]:
    """What stands against new members of a pool that is there."""
    there = {m.name: m for m in Member.objects.filter(LIVE, pool=pool)}
    found = []
    for i, member in enumerate(declared):
        if other := there.get(member.name):
            way_out = (
                "Keep it, or wait until it is gone."
                if other.is_leaving
                else "Choose another name, or edit that member."
            )
            state = "still leaving" if other.is_leaving else "there already"
            found.append(FieldError(f"{where}[{i}].name", f"{member.name} is {state}.", way_out))
    if len(there) + len(declared) > spec.max_members:
        more = (
            f"{len(there)} of at most {spec.max_members} members are there: {len(declared)} "
            "more do not fit."
        )
        found.append(FieldError(where, more, "Raise members.max of the pool, or remove members."))
    return found + list_overlaps(spec, declared, where)


def list_overlaps(
    spec: PoolSpec,
    declared: Sequence[MemberSpec],
    where: str,
    *,
    except_members: Sequence[int] = (),
) -> list[FieldError]:
    """Two pools on one load balancer never share a port. Who has them is named."""
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
                    "Give each ports of its own.",
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
    """Somebody was faster and the database refused: say it as if it had been seen before."""
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
