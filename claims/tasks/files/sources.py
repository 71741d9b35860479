"""Sources: archives of tasks, uploaded or given in the claim. Berth packs their files again,
encrypts the archive and stores equal archives once.

A claim may use an archive if its requester has uploaded the same archive, or if claims of the same
pool have used it. Knowing the digest is not enough.
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
from project.kernel.errors import OutOfSpace, TooLarge, Unavailable, wrong_field

SOURCE_BYTES = MOST_PACKED
AT_ONCE = 2  # archives that a web process unpacks at the same time: each needs memory and CPU time
PATIENCE = 10.0  # seconds

_turns = threading.BoundedSemaphore(AT_ONCE)


class SourceQuotaExceeded(TooLarge):
    """The sources of a user would exceed the quota."""

    code = "source_quota"


@dataclass(frozen=True, slots=True)
class StoredSource:
    id: int
    digest: str  # sha256 of the stored archive
    size: int
    files: int


def store_source(data: bytes, *, made_by: str) -> StoredSource:
    """Stores an uploaded tar.gz or zip."""
    if len(data) > SOURCE_BYTES:
        text = f"{len(data)} bytes are too many."
        raise wrong_field(
            "",
            text,
            f"Send at most {SOURCE_BYTES}: leave out files that the task does not need.",
        )
    if not _turns.acquire(timeout=PATIENCE):
        raise Unavailable(
            "Other archives are being uploaded.", way_out="Send the archive again in a moment."
        )
    try:
        return _store(repack_limited(data), made_by)
    finally:
        _turns.release()


def store_files(files: Iterable[tuple[str, str]], *, made_by: str) -> StoredSource:
    """Stores the files of a claim's body."""
    return _store(pack_files(files), made_by)


def source_of(run: RunRequest, *, made_by: str, pools: Sequence[str]) -> int | None:
    """Returns the id of the source of a claim, and stores inline files first. Called before the
    transaction that creates the claim, because it writes a file.
    """
    if run.source.kind == "files":
        return store_files(run.source.files, made_by=made_by).id
    if run.source.kind != "archive":
        return None
    row = sources_sql.find_own(
        digest=bytes.fromhex(run.source.digest), by=made_by, pools=list(pools)
    )
    if row is None:  # the answer does not tell whether another user has the archive
        way_out = "Upload it to /api/v1/sources/ first. Berth keeps an unused archive for a day."
        raise wrong_field(
            f"{run.where}.source.archive", "You have no archive of this digest.", way_out
        )
    return row.id


def count_stored(made_by: str) -> int:
    """Bytes of the sources that this user uploaded first."""
    return sources_sql.count_kept(by=made_by)


def refuse_above_quota(used: int, size: int) -> None:
    allowed = settings.BERTH_SOURCE_QUOTA
    if allowed is not None and used + size > allowed:
        raise SourceQuotaExceeded(
            f"This source has {in_megabytes(size)}. You keep {in_megabytes(used)} of sources and "
            f"may keep {in_megabytes(allowed)}.",
            way_out="Leave out files that the task does not need, or use git, which takes no space "
            "here. A source is deleted with its claims, an unused one after a day. The operator of "
            "Berth may raise BERTH_SOURCE_QUOTA.",
            size=size,
            used=used,
            allowed=allowed,
        )


def refuse_below_reserve(size: int) -> None:
    """Raises if a source would take the part of the disk that is reserved for plans, logs and the
    database.
    """
    reserve, free = settings.BERTH_DISK_RESERVE, count_free()
    if reserve is not None and free is not None and free - size < reserve:
        raise OutOfSpace(
            f"The disk for sources has {in_megabytes(free)} free, and {in_megabytes(reserve)} of "
            "it stay free for plans and logs.",
            code="disk_reserve",
            way_out="Ask the operator of Berth to free disk space (BERTH_FILES, "
            "BERTH_DISK_RESERVE), then send it again. A source from git takes no space here.",
            free=free,
            reserve=reserve,
        )


def in_megabytes(size: int) -> str:
    return f"{size / 1e6:,.1f} MB"


def _store(archive: Archive, made_by: str) -> StoredSource:
    """Writes the file, then the row that names it. Called outside of transactions, because writing
    a file takes long.
    """
    digest = hashlib.sha256(archive.data)
    row = sources_sql.find(digest=digest.digest(), by=made_by)
    if row is None:
        size = len(archive.data)
        refuse_above_quota(count_stored(made_by), size)
        refuse_below_reserve(size)
        name = save_file("source", digest.hexdigest(), archive.data)
        try:
            refuse_below_reserve(0)  # again, because of simultaneous uploads
            with transaction.atomic():
                # The lock serialises the quota checks of simultaneous uploads.
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
