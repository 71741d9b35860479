"""The file of a backup, without keys: a tar with `database.dump` (for pg_restore), the sealed files
in `files/`, and last `contents.json`. A file without `contents.json` is truncated.
"""

import io
import json
import os
import secrets
import shutil
import tarfile
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path, PurePosixPath
from typing import IO

from project.kernel.embedded.process import StartupError

DATABASE, FILES, CONTENTS = "database.dump", "files", "contents.json"
# First bytes of a dump by pg_dump alone: by earlier versions, and before migrations.
PG_DUMP = b"PGDMP"
SCRATCH = ".new"  # a sealed file that is being replaced


@dataclass(frozen=True)
class BackupContents:
    files: int = 0
    size: int = 0  # bytes of the sealed files
    keys: list[str] = field(default_factory=list)  # ids of the sealing keys


def pack(into: Path, database: Path, files: Path, keys: list[str]) -> BackupContents:
    """Writes the backup, which appears under its name only when it is complete. A file that is
    deleted meanwhile is named by no row of the dump.
    """
    part = into.with_name(f"{into.name}.part")
    count = size = 0
    with _open_private(part) as out:
        with tarfile.open(fileobj=out, mode="w", dereference=True) as tar:
            tar.add(database, DATABASE, filter=_without_owner)
            for path in sorted(path for path in files.rglob("*") if path.suffix != SCRATCH):
                try:
                    with path.open("rb") as file:
                        member = _without_owner(
                            tar.gettarinfo(
                                arcname=f"{FILES}/{path.relative_to(files)}", fileobj=file
                            )
                        )
                        tar.addfile(member, file)
                except (FileNotFoundError, IsADirectoryError):
                    continue
                count, size = count + 1, size + member.size
            contents = BackupContents(count, size, keys)
            text = json.dumps(asdict(contents)).encode()
            last = tarfile.TarInfo(CONTENTS)
            last.size, last.mode = len(text), 0o600
            tar.addfile(last, io.BytesIO(text))
        out.flush()
        os.fsync(out.fileno())
    part.rename(into)
    return contents


def _without_owner(member: tarfile.TarInfo) -> tarfile.TarInfo:
    member.uid = member.gid = 0
    member.uname = member.gname = ""
    return member


def is_plain(file: Path) -> bool:
    """Whether the file is a dump of the database without files."""
    with file.open("rb") as opened:
        return opened.read(len(PG_DUMP)) == PG_DUMP


def read_contents(file: Path) -> BackupContents:
    """Reads the contents. Raises `StartupError` for a truncated file or another format."""
    try:
        with tarfile.open(file, "r:") as tar:
            last = tar.getmembers()[-1]
            if last.name == CONTENTS:
                found = tar.extractfile(last)
                assert found is not None
                return BackupContents(**json.load(found))
    except (tarfile.TarError, ValueError, TypeError, IndexError, EOFError) as error:
        raise StartupError(f"{file} is no dump of Berth, or it is damaged: {error}") from None
    raise StartupError(f"{file} is no dump of Berth, or it was cut off: its last part is missing.")


def unpack_database(file: Path, into: Path) -> None:
    with tarfile.open(file, "r:") as tar:
        found = tar.extractfile(DATABASE)
        assert found is not None
        with _open_private(into) as out:
            shutil.copyfileobj(found, out)


def add_files(file: Path, into: Path) -> tuple[int, int]:
    """Writes missing files; returns how many were added and how many were present. A name never
    stands for two contents, so present files are not compared.
    """
    added = present = 0
    with tarfile.open(file, "r:") as tar:
        for member, opened in _list_files(tar):
            path = into / PurePosixPath(member.name).relative_to(FILES)
            if path.exists():
                present += 1
                continue
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            scratch = path.with_name(f"{path.name}.{secrets.token_hex(4)}{SCRATCH}")
            with _open_private(scratch) as out:
                shutil.copyfileobj(opened, out)
                out.flush()
                os.fsync(out.fileno())
            os.utime(scratch, (member.mtime, member.mtime))
            scratch.replace(path)
            added += 1
    return added, present


def _open_private(path: Path) -> IO[bytes]:
    return os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb")


def _list_files(tar: tarfile.TarFile) -> Iterator[tuple[tarfile.TarInfo, IO[bytes]]]:
    for member in tar:
        parts = PurePosixPath(member.name).parts
        if member.isreg() and parts[0] == FILES and len(parts) > 1 and ".." not in parts:
            opened = tar.extractfile(member)
            assert opened is not None
            yield member, opened
