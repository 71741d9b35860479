"""How long what tasks leave behind is kept: with its claim, and files as long as a row names
them. Registered with the finalizer.
"""

import time
from datetime import timedelta

from django.utils import timezone

from claims.tasks.files import sources_sql
from claims.tasks.files.sealed_files import (
    delete_file,
    list_names,
    list_shelves,
    modified_at,
    owner_of,
)
from project.kernel.controllers.periodic import chore
from project.kernel.doctor.restore_detection import is_dumped_now, was_restored_within

RESTORED = 24 * 3600.0  # seconds after a restore in which no file is swept
ORPHAN = timedelta(hours=1)  # a file is written before the row that names it
UNUSED = 24 * 3600.0  # seconds in which an archive is to be named by a claim
BATCH = 100
SHELVES = 64  # folders of files that are looked through at a time


@chore("unused sources", every=600.0)
def delete_unused_sources() -> bool:
    """Their files are orphans from here on."""
    return len(sources_sql.delete_unused(BATCH, seconds=UNUSED)) == BATCH


class _SweepCursor:
    """Where the sweep has come to."""

    shelves: list[str] = []
    began_at = 0.0


@chore("orphan files", every=60.0)
def sweep_files() -> bool:
    """Files that no row names, an hour after they were written. All folders in turn, some at a
    time, every ten minutes.
    """
    if not _SweepCursor.shelves:
        if time.monotonic() - _SweepCursor.began_at < 600.0 and _SweepCursor.began_at:
            return False
        _SweepCursor.shelves, _SweepCursor.began_at = list(list_shelves()), time.monotonic()
    now, _SweepCursor.shelves = _SweepCursor.shelves[:SHELVES], _SweepCursor.shelves[SHELVES:]
    if now and was_restored_within(RESTORED):
        # An hour-old orphan of this database may be a file that the data from before the
        # restore needs.
        return False
    for shelf in now:
        sweep_shelf(shelf)
    return bool(_SweepCursor.shelves)


def sweep_shelf(shelf: str) -> int:
    """How many went."""
    old = [
        name
        for name in list_names(shelf)
        if (at := modified_at(name)) is not None and at < timezone.now() - ORPHAN
    ]
    if not old:
        return 0
    orphans = set(old) - known_files(shelf, old)
    # Asked after the rows: a dump that begins later no longer has a row that names them.
    if is_dumped_now():
        return 0
    for name in orphans:
        delete_file(name)
    return len(orphans)


def known_files(shelf: str, names: list[str]) -> set[str]:
    """Of these, those that a row names. A name says where to look."""
    if shelf.startswith("source/"):
        digests = [bytes.fromhex(owner_of(name)) for name in names if len(owner_of(name)) == 64]
        return {row.name for row in sources_sql.known_source_files(digests=digests)}
    claims = {
        int(number) for name in names if (number := owner_of(name).partition("-")[0]).isdecimal()
    }
    return {row.name for row in sources_sql.known_plan_files(claims=sorted(claims))}
