"""Files beside the database: saved plans, their JSON, sources and states. Every file is encrypted
before it reaches the storage.

A file is written before the row that names it and deleted after that row. A file without a row is
an orphan, deleted an hour later. The name of a file contains its claim or digest, so one lookup by
index finds the row.
"""

import hashlib
import io
import os
import re
import secrets
import shutil
import struct
from collections.abc import Callable, Iterable, Iterator
from datetime import datetime
from pathlib import Path
from typing import IO, Any, cast

from django.core.files.base import ContentFile, File
from django.core.files.storage import FileSystemStorage, Storage, storages

from project.kernel.errors import NotFound
from project.kernel.security.encryption import is_current, seal, unseal

ALIAS = "sealed"
KINDS = ("plan", "json", "outline", "source", "state")
FRAME = 1 << 20  # bytes of a piece: encrypting piece by piece keeps a large file in memory once
PIECE_HEADER = struct.Struct(
    ">II"
)  # inside each encrypted piece: its number and the number of pieces
LENGTH = struct.Struct(">I")  # before each encrypted piece
NAME = re.compile(r"[0-9a-z][0-9a-z-]{0,120}")


class DurableStorage(FileSystemStorage):
    """Syncs a file to the disk before a row names it: a row must never outlive its file."""

    def _save(self, name: str, content: object) -> str:
        try:
            saved: str = super()._save(name, content)  # type: ignore[misc]  # not in the stubs
            path = Path(self.path(saved))
            _sync(path)
            _sync(path.parent)
        except OSError:
            # An incomplete file would take space on a disk that may be full.
            Path(self.path(name)).unlink(missing_ok=True)
            raise
        return saved

    def replace(self, name: str, data: bytes) -> None:
        """Atomic: a simultaneous reader gets the old or the new file."""
        path = Path(self.path(name))
        scratch = path.with_name(f"{path.name}.new")
        try:
            with open(os.open(scratch, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as new:
                new.write(data)
            _sync(scratch)
        except OSError:
            scratch.unlink(missing_ok=True)
            raise
        scratch.replace(path)
        _sync(path.parent)


def _sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def storage() -> Storage:
    return storages[ALIAS]


def save_file(kind: str, name: str, data: bytes) -> str:
    """Returns the name of the new file. `name`: claim-generation of a run, or the digest of a
    source.
    """
    if kind not in KINDS or not NAME.fullmatch(name):
        raise ValueError(f"bad kind or name of a file: {kind}/{name}")
    shelf = hashlib.sha256(name.encode()).hexdigest()[:2]
    return str(
        storage().save(
            f"{kind}/{shelf}/{name}.{secrets.token_hex(8)}",
            File(cast("IO[bytes]", SealedStream(data))),
        )
    )


def count_free() -> int | None:
    """Free bytes on the disk of the storage. None: the storage is no folder."""
    where = storage()
    if not isinstance(where, FileSystemStorage):
        return None
    folder = Path(where.location)
    while not folder.exists():
        folder = folder.parent
    return shutil.disk_usage(folder).free


def iterate_file(name: object) -> Iterator[bytes]:
    """Reads piece by piece, so that a large file is never in memory as a whole. Raises at once for
    a missing file.
    """
    return unseal_pieces(split_pieces(_open(name)))


def _open(name: object) -> "File[bytes]":
    try:
        return storage().open(str(name))
    except FileNotFoundError:
        raise NotFound(
            "This file no longer exists.",
            code="file_missing",
            way_out=(
                "If several machines serve Berth, all need the same storage: see docs/tasks.md."
            ),
        )


def read_file(name: object) -> bytes:
    """`name`: a text, or the file field of a model."""
    return b"".join(iterate_file(name))


def delete_file(name: object) -> None:
    """Ignores an empty name and a file that is gone."""
    if name:
        storage().delete(str(name))


def reseal_file(name: str, rename: Callable[[str, str], bool]) -> bool:
    """Encrypts a file with the current key. False: the file has that key, is gone, or no row names
    it.

    A storage without atomic replacement gets a new file, and `rename` puts its name into the rows;
    `rename` returns False if no row had the old name. Each row has a file at all times, and the
    sweep of orphans deletes the old file.
    """
    where = storage()
    try:
        pieces = list(split_pieces(where.open(name)))
    except FileNotFoundError:
        return False
    if all(map(is_current, pieces)):
        return False
    resealed = b"".join(iterate_sealed(b"".join(unseal_pieces(pieces))))
    if isinstance(where, DurableStorage):
        where.replace(name, resealed)
        return True
    fresh = where.save(f"{name.rpartition('.')[0]}.{secrets.token_hex(8)}", ContentFile(resealed))
    is_named = rename(name, fresh)
    if not is_named:
        where.delete(fresh)
    return is_named


def iterate_sealed(data: bytes) -> Iterator[bytes]:
    count = max(1, -(-len(data) // FRAME))
    for i in range(count):
        piece = seal(PIECE_HEADER.pack(i, count) + data[i * FRAME : (i + 1) * FRAME])
        yield LENGTH.pack(len(piece)) + piece


class SealedStream(io.RawIOBase):
    """Encrypts data while the storage reads it, so that a large file is in memory once."""

    def __init__(self, data: bytes) -> None:
        super().__init__()
        self._data = data
        self.seek(0)

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """Supports only the beginning: a storage may read the stream twice."""
        if offset or whence != io.SEEK_SET:
            raise io.UnsupportedOperation("seek")
        self._pieces, self._left, self._at = iterate_sealed(self._data), memoryview(b""), 0
        return 0

    def tell(self) -> int:
        return self._at

    def readinto(self, buffer: Any) -> int:
        if not self._left:
            self._left = memoryview(next(self._pieces, b""))
        part, self._left = self._left[: len(buffer)], self._left[len(buffer) :]
        buffer[: len(part)] = part
        self._at += len(part)
        return len(part)


def split_pieces(file: "File[bytes]") -> Iterator[bytes]:
    """The encrypted pieces. Closes the file at its end."""
    with file:
        while len(head := file.read(LENGTH.size)) == LENGTH.size:
            yield file.read(*LENGTH.unpack(head))


def unseal_pieces(pieces: Iterable[bytes]) -> Iterator[bytes]:
    number = count = 0
    for number, piece in enumerate(pieces, 1):
        plain = unseal(piece)
        i, count = PIECE_HEADER.unpack_from(plain)
        if i != number - 1:
            raise _broken("The pieces of this file are in the wrong order.")
        yield plain[PIECE_HEADER.size :]
    if not number or number != count:
        raise _broken("A part of this file is missing.")


def _broken(text: str) -> NotFound:
    return NotFound(text, code="file_broken", way_out="Restore it from a backup.")


def list_shelves() -> Iterator[str]:
    """Folders of files, each of one kind."""
    for kind in KINDS:
        try:
            shelves, _ = storage().listdir(kind)
        except FileNotFoundError:
            continue
        yield from (f"{kind}/{shelf}" for shelf in sorted(shelves))


def list_names(shelf: str) -> list[str]:
    try:
        return [f"{shelf}/{name}" for name in sorted(storage().listdir(shelf)[1])]
    except FileNotFoundError:
        return []


def modified_at(name: str) -> datetime | None:
    try:
        return storage().get_modified_time(name)
    except FileNotFoundError:
        return None


def owner_of(name: str) -> str:
    """The `name` that `save_file` got: claim-generation or a digest."""
    return name.rpartition("/")[2].partition(".")[0]
