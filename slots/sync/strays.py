"""Objects outside without a member, as the last look at a pool found them. They are kept in
`Pool.strays`, for the pages.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from datetime import datetime

from django.db import transaction

from pools.models import Member, Pool
from project.kernel.db.locks import MEMBER_IDS, lock_in_transaction
from slots.members import members_sql

MOST = 1000  # objects kept of a pool
# An object can name any number: the account's owner can write its tags. Later members get higher
# ids than an unknown one, so a huge number would use up the ids.
LARGEST_KNOWN = 1 << 48


@dataclass(frozen=True, slots=True)
class Stray:
    name: str
    is_gone: bool  # it belongs to a member that is gone, so Berth removes it
    since: str  # the start of the look that found it first
    member_id: int = 0  # that its marks name; 0: an earlier version stored the object


def sort_strays(strays: Mapping[int, str]) -> tuple[dict[int, str], dict[int, str]]:
    """The objects of gone members and those of unknown members. An object of a live member was
    created after the snapshot of the look, and is no stray.

    Ids of members are never reused, so the objects of gone members can be removed. An id that the
    rows have never known comes from a newer copy of this database, and its object may be in use.
    """
    states = dict(Member.objects.filter(pk__in=strays).values_list("pk", "state"))
    gone = {each: name for each, name in strays.items() if states.get(each) == "gone"}
    return gone, {each: name for each, name in strays.items() if each not in states}


def read_strays(pool: Pool) -> list[Stray]:
    """In the order of their names. Earlier versions stored the names alone, which the next look
    replaces.
    """
    return [Stray(**each) for each in pool.strays if isinstance(each, dict)]


def record_strays(
    pool: Pool, *, gone: Mapping[int, str], unknown: Mapping[int, str], started: datetime
) -> None:
    """Keep the objects, by the ids of their members, unless a later look has been recorded. New
    members get higher ids, so that none takes over one of the objects.
    """
    if ids := [each for each in unknown if each <= LARGEST_KNOWN]:
        with transaction.atomic():
            lock_in_transaction(MEMBER_IDS, "ids")
            members_sql.raise_member_ids(id=max(ids))
    since = {stray.name: stray.since for stray in read_strays(pool)}
    found = [(name, True, member_id) for member_id, name in gone.items()]
    found += [(name, False, member_id) for member_id, name in unknown.items()]
    kept = [
        asdict(Stray(name, is_gone, since.get(name, started.isoformat()), member_id))
        for name, is_gone, member_id in sorted(found)[:MOST]
    ]
    latest = Pool.objects.filter(pk=pool.pk, observed_at=started)
    latest.exclude(strays=kept).update(strays=kept)
