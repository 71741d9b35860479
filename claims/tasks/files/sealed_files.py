"""Files beside the database: saved plans, their JSON, sources. Sealed before they reach the
storage, whatever storage that is.

A file is written before the row that names it, and a row goes before its file: what no row names is
an orphan, swept an hour later. The name says whose it is, so that one lookup by index tells whether
anybody still needs it.
"""

import hashlib
import io
import os
import re
import secrets
import shutil
import struct
from collections.abc import Callable, Iterator
from datetime import datetime
from pathlib import Path
from typing import IO, Any, cast

from django.core.files.base import ContentFile, File
from django.core.files.storage import FileSystemStorage, Storage, storages

from project.kernel.errors import NotFound
from project.kernel.security.encryption import is_current, seal, unseal

ALIAS = "sealed"
KINDS = ("plan", "json", "outline", "source", "state")
FRAME = 1 << 20  # sealed piece by piece, so that a large file is in memory once
PIECE = struct.Struct(">II")  # inside each sealed piece: which one, of how many
LENGTH = struct.Struct(">I")  # before each
NAME = re.compile(r"[0-9a-z][0-9a-z-]{0,120}")


class DurableStorage(FileSystemStorage):
    """On the disk before anything names it: a row must never outlive its file."""

    def _save(self, name: str, content: Any) -> str:
        try:
            saved: str = super()._save(name, content)  # type: ignore[misc]  # not in the stubs
            path = Path(self.path(saved))
            _sync(path)
            _sync(path.parent)
        except OSError:
            # A part of it would take room on a disk that may be full.
            Path(self.path(name)).unlink(missing_ok=True)
            raise
        return saved

    def replace(self, name: str, data: bytes) -> None:
        """At once, for whoever reads it just now."""
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
    """The name under which it is kept. `name`: of the run, as claim-generation, or the digest
    of a source.
    """
    if kind not in KINDS or not NAME.fullmatch(name):
        raise ValueError(f"not a name of a file: {kind}/{name}")
    shelf = hashlib.sha256(name.encode()).hexdigest()[:2]
    return str(
        storage().save(
            f"{kind}/{shelf}/{name}.{secrets.token_hex(8)}",
            File(cast("IO[bytes]", SealedStream(data))),
        )
    )


def count_free() -> int | None:
    """Bytes of free disk where files are kept. None: the storage is no folder."""
    where = storage()
    if not isinstance(where, FileSystemStorage):
        return None
    folder = Path(where.location)
    while not folder.exists():
        folder = folder.parent
    return shutil.disk_usage(folder).free


def iterate_file(name: object) -> Iterator[bytes]:
    """Piece by piece, so that a large file is never in memory as a whole. A file that is missing
    is said at once.
    """
    file = _open(name)
    return _read_pieces(file)


def _read_pieces(file: Any) -> Iterator[bytes]:
    with file:
        number = count = 0
        while head := file.read(LENGTH.size):
            (length,) = LENGTH.unpack(head)
            count, piece = open_piece(file.read(length), number)
            yield piece
            number += 1
        check_whole(number, count)


def _open(name: object) -> Any:
    try:
        return storage().open(str(name))
    except FileNotFoundError:
        raise NotFound(
            "This file is not there any more.",
            code="file_missing",
            way_out=(
                "If several machines serve Berth, all need the same storage: see docs/tasks.md."
            ),
        )


def read_file(name: object) -> bytes:
    """By the name that a row keeps; a model's file field says it, too."""
    with _open(name) as file:
        return unseal_pieces(file.read())


def delete_file(name: object) -> None:
    """One that is gone already is fine."""
    if name:
        storage().delete(str(name))


def reseal_file(name: str, rename: Callable[[str, str], bool]) -> bool:
    """Under the present key. False: it is so already, or the file has gone meanwhile, or
    nobody needs it.

    Where a file cannot be replaced at once it is written anew under another name, and `rename` has
    the rows name that one, or says that none did. At no moment is a row without its file; the old
    one is swept like any that no row names.
    """
    where = storage()
    try:
        with where.open(name) as file:
            sealed = file.read()
    except FileNotFoundError:
        return False
    if all(is_current(piece) for piece in split_pieces(sealed)):
        return False
    again = seal_pieces(unseal_pieces(sealed))
    if isinstance(where, DurableStorage):
        where.replace(name, again)
        return True
    fresh = where.save(f"{name.rpartition('.')[0]}.{secrets.token_hex(8)}", ContentFile(again))
    is_named = rename(name, fresh)
    if not is_named:
        where.delete(fresh)
    return is_named


def seal_pieces(data: bytes) -> bytes:
    return b"".join(iterate_sealed(data))


def iterate_sealed(data: bytes) -> Iterator[bytes]:
    count = max(1, -(-len(data) // FRAME))
    for i in range(count):
        piece = seal(PIECE.pack(i, count) + data[i * FRAME : (i + 1) * FRAME])
        yield LENGTH.pack(len(piece)) + piece


class SealedStream(io.RawIOBase):
    """Data as it is kept, sealed while it is read, so that a large file is in memory once."""

    def __init__(self, data: bytes) -> None:
        super().__init__()
        self._data = data
        self.seek(0)

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """To its beginning alone: a storage may read it twice."""
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


def unseal_pieces(sealed: bytes) -> bytes:
    found = bytearray()
    number = count = 0
    for piece in split_pieces(sealed):
        count, plain = open_piece(piece, number)
        found += plain
        number += 1
    check_whole(number, count)
    return bytes(found)


def open_piece(piece: bytes, number: int) -> tuple[int, bytes]:
    """Of how many it is one, and what is in it."""
    plain = unseal(piece)
    i, count = PIECE.unpack_from(plain)
    if i != number:
        raise NotFound(
            "This file was put together differently since.",
            code="file_broken",
            way_out="Restore it from a backup.",
        )
    return count, plain[PIECE.size :]


def check_whole(number: int, count: int) -> None:
    if not number or number != count:
        raise NotFound(
            "A part of this file is missing.",
            code="file_broken",
            way_out="Restore it from a backup.",
        )


def split_pieces(sealed: bytes) -> Iterator[bytes]:
    at = 0
    while at + LENGTH.size <= len(sealed):
        (length,) = LENGTH.unpack_from(sealed, at)
        at += LENGTH.size
        yield sealed[at : at + length]
        at += length


def list_shelves() -> Iterator[str]:
    """Folders in which files of one kind are."""
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
    """What save_file was told: claim-generation, or a digest."""
    return name.rpartition("/")[2].partition(".")[0]
