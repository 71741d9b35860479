"""Delete unused sources, and files that no row names. The finalizer runs these chores."""

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

RESTORED = 24 * 3600.0  # seconds after a restore in which no file is deleted
ORPHAN = timedelta(hours=1)  # a file is written before the row that names it
UNUSED = 24 * 3600.0  # seconds until an unused source is deleted
BATCH = 100
SHELVES = 64  # folders in one sweep


@chore("unused sources", every=600.0)
def delete_unused_sources() -> bool:
    """Deletes rows; the sweep of orphans deletes their files."""
    return len(sources_sql.delete_unused(BATCH, seconds=UNUSED)) == BATCH


class _SweepCursor:
    """The folders that the sweep has still to visit."""

    shelves: list[str] = []
    began_at = 0.0


@chore("orphan files", every=60.0)
def sweep_files() -> bool:
    """Deletes files without a row, an hour after they were written. Each call visits some folders,
    and a new round starts every ten minutes.
    """
    if not _SweepCursor.shelves:
        if time.monotonic() - _SweepCursor.began_at < 600.0 and _SweepCursor.began_at:
            return False
        _SweepCursor.shelves, _SweepCursor.began_at = list(list_shelves()), time.monotonic()
    now, _SweepCursor.shelves = _SweepCursor.shelves[:SHELVES], _SweepCursor.shelves[SHELVES:]
    if now and was_restored_within(RESTORED):
        # An orphan of the restored database may belong to the data from before the restore.
        return False
    for shelf in now:
        sweep_shelf(shelf)
    return bool(_SweepCursor.shelves)


def sweep_shelf(shelf: str) -> int:
    """Returns the number of deleted files."""
    old = [
        name
        for name in list_names(shelf)
        if (at := modified_at(name)) is not None and at < timezone.now() - ORPHAN
    ]
    if not old:
        return 0
    orphans = set(old) - known_files(shelf, old)
    # Checked after the rows: a later dump contains no row that names these files.
    if is_dumped_now():
        return 0
    for name in orphans:
        delete_file(name)
    return len(orphans)


def known_files(shelf: str, names: list[str]) -> set[str]:
    """The names that a row contains. The owner in a name selects the rows."""
    if shelf.startswith("source/"):
        digests = [bytes.fromhex(owner_of(name)) for name in names if len(owner_of(name)) == 64]
        return {row.name for row in sources_sql.known_source_files(digests=digests)}
    claims = {
        int(number) for name in names if (number := owner_of(name).partition("-")[0]).isdecimal()
    }
    return {row.name for row in sources_sql.known_plan_files(claims=sorted(claims))}
