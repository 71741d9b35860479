"""Sources: archives that tasks start from, uploaded or given in the claim. Written anew on the way
in, sealed, equal ones kept once.

An archive is used by who uploaded it, or the same one, and for claims in pools where it was used:
to know its digest is not enough.
"""

import hashlib
import threading
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from django.conf import settings
from django.db import transaction

from claims.tasks.files import sources_sql
from claims.tasks.files.archives import MOST_PACKED, Archive, pack_files, repack_limited
from claims.tasks.files.sealed_files import count_free, delete_file, save_file
from claims.tasks.run_spec import RunRequest
from project.kernel.db.locks import SOURCE_QUOTA, lock_in_transaction
from project.kernel.errors import FieldError, Invalid, OutOfSpace, TooLarge, Unavailable

SOURCE_BYTES = MOST_PACKED
AT_ONCE = 2  # archives that are unpacked in a process: each takes memory and a while
PATIENCE = 10.0

_turns = threading.BoundedSemaphore(AT_ONCE)


class SourceQuotaExceeded(TooLarge):
    """The sources of one user would take more than they may."""

    code = "source_quota"


@dataclass(frozen=True, slots=True)
class StoredSource:
    id: int
    digest: str  # sha256 of the archive as it is kept
    size: int
    files: int


def store_source(data: bytes, *, made_by: str) -> StoredSource:
    """An archive from elsewhere, a tar.gz or a zip."""
    if len(data) > SOURCE_BYTES:
        text = f"{len(data)} bytes are too many."
        raise Invalid(
            fields=[
                FieldError(
                    "", text, f"Send {SOURCE_BYTES} at most: leave out what the task does not need."
                )
            ]
        )
    if not _turns.acquire(timeout=PATIENCE):
        raise Unavailable(
            "Others are uploading archives just now.", way_out="Send it again in a moment."
        )
    try:
        return _store(repack_limited(data), made_by)
    finally:
        _turns.release()


def store_files(files: Iterable[tuple[str, str]], *, made_by: str) -> StoredSource:
    """Files that were given in the claim itself."""
    return _store(pack_files(files), made_by)


def source_of(run: RunRequest, *, made_by: str, pools: Sequence[str]) -> int | None:
    """The row of a claim's source, made if it is new. Before the transaction that makes the
    claim: a file is written.
    """
    if run.source.kind == "files":
        return store_files(run.source.files, made_by=made_by).id
    if run.source.kind != "archive":
        return None
    row = sources_sql.find_own(
        digest=bytes.fromhex(run.source.digest), by=made_by, pools=list(pools)
    )
    if row is None:  # whether somebody else has one is not told
        way_out = "Upload it to /api/v1/sources/ first: one that nobody uses is kept for a day."
        raise Invalid(
            fields=[
                FieldError(
                    f"{run.where}.source.archive", "You have no archive of this digest.", way_out
                )
            ]
        )
    return int(row.id)


def count_stored(made_by: str) -> int:
    """Bytes of the sources that this user brought. What others upload again counts for whoever
    was first.
    """
    return int(sources_sql.count_kept(by=made_by))


def refuse_above_quota(used: int, size: int) -> None:
    allowed = settings.BERTH_SOURCE_QUOTA
    if allowed is not None and used + size > allowed:
        raise SourceQuotaExceeded(
            f"This source has {in_megabytes(size)}. You keep {in_megabytes(used)} of sources and "
            f"may keep {in_megabytes(allowed)}.",
            way_out="Leave out what the task does not need, or take it from git, which takes no "
            "room here. A source that no claim names is deleted after a day, another with "
            "its claims. Whoever runs Berth may raise BERTH_SOURCE_QUOTA.",
            size=size,
            used=used,
            allowed=allowed,
        )


def refuse_below_reserve(size: int) -> None:
    """Sources leave a part of the disk to plans, logs and the database."""
    reserve, free = settings.BERTH_DISK_RESERVE, count_free()
    if reserve is not None and free is not None and free - size < reserve:
        raise OutOfSpace(
            f"The disk for sources has {in_megabytes(free)} free, and {in_megabytes(reserve)} of "
            "it stay free for plans and logs.",
            code="disk_reserve",
            way_out="Ask whoever runs Berth to make room (BERTH_FILES, BERTH_DISK_RESERVE), then "
            "send it again. A source from git takes no room here.",
            free=free,
            reserve=reserve,
        )


def in_megabytes(size: int) -> str:
    return f"{size / 1e6:,.1f} MB"


def _store(archive: Archive, made_by: str) -> StoredSource:
    """The file first, then the row that names it. Called outside of transactions: a file
    takes a while.
    """
    digest = hashlib.sha256(archive.data)
    row = sources_sql.find(digest=digest.digest(), by=made_by)
    if row is None:
        size = len(archive.data)
        refuse_above_quota(count_stored(made_by), size)
        refuse_below_reserve(size)
        name = save_file("source", digest.hexdigest(), archive.data)
        try:
            refuse_below_reserve(0)  # again: others may have written at the same time
            with transaction.atomic():
                # Two uploads at once are counted one after the other.
                lock_in_transaction(SOURCE_QUOTA, made_by)
                refuse_above_quota(count_stored(made_by), size)
                added = sources_sql.add_source(
                    digest=digest.digest(),
                    file=name,
                    size=size,
                    files=archive.files,
                    made_by=made_by,
                )
        except BaseException:
            delete_file(name)
            raise
        assert added is not None
        if added.file != name:
            delete_file(name)
        return StoredSource(added.id, digest.hexdigest(), added.size, added.files)
    return StoredSource(row.id, digest.hexdigest(), row.size, row.files)
