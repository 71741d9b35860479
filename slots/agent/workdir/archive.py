"""Unpacks an untrusted archive: only files, folders and links inside of the folder, to a limit."""

from __future__ import annotations

import gzip
import os
import tarfile
import zlib
from pathlib import Path

from ..common.errors import TaskFailed
from .tar_headers import CheckedTarInfo

MOST_FILES = 50_000
MOST_BYTES = 512_000_000
FREE_BYTES = 20_000_000  # allowed size of any archive's contents, independent of the ratio
HIGHEST_RATIO = 400  # looser than the server's limit, because the server may repack an archive
LONGEST_NAME = 1024
DEEPEST = 64
COPY_BYTES = 1 << 16


class BoundedGzip:
    """Reads gzip up to a limit and raises `error` beyond, before a bomb fills the disk."""

    def __init__(self, stream: gzip.GzipFile, most: int, error: Exception) -> None:
        self.stream, self.left, self.error = stream, most, error

    def read(self, size: int) -> bytes:
        data = self.stream.read(size)
        self.left -= len(data)
        if self.left < 0:
            raise self.error
        return data


def unpack(archive: Path, folder: Path, most_bytes: int = MOST_BYTES) -> None:
    """Unpack into an empty folder. Links are created last, so that no file is written through a
    link.
    """
    most = min(most_bytes, max(FREE_BYTES, archive.stat().st_size * HIGHEST_RATIO))
    too_large = TaskFailed("source_refused", "The archive unpacks to more than is allowed.")
    links: list[tuple[list[str], str]] = []
    try:
        with gzip.open(archive, "rb") as packed, tarfile.open(
            fileobj=BoundedGzip(packed, most, too_large), mode="r|", tarinfo=CheckedTarInfo
        ) as tar:  # type: ignore[call-overload]
            for count, member in enumerate(tar, 1):
                if count > MOST_FILES:
                    raise TaskFailed(
                        "source_refused", f"The archive holds more than {MOST_FILES:,} files."
                    )
                parts = split_name(member.name)
                if member.issym():
                    links.append((parts, member.linkname))
                elif member.isdir():
                    folder.joinpath(*parts).mkdir(parents=True, exist_ok=True)
                elif member.isreg():
                    write_file(tar, member, folder.joinpath(*parts))
                else:
                    raise TaskFailed(
                        "source_refused",
                        f"{member.name[:200]!r} in the archive is neither file, folder nor "
                        "symbolic link.",
                    )
    except (
        tarfile.TarError,
        EOFError,
        zlib.error,
        gzip.BadGzipFile,
        ValueError,
        OverflowError,
        RecursionError,
    ) as error:
        raise TaskFailed("source_refused", f"The archive is not a valid tar.gz: {error}") from error
    except (FileExistsError, NotADirectoryError, IsADirectoryError) as error:
        raise TaskFailed(
            "source_refused", f"The archive contains a path twice: {error.filename}"
        ) from error
    for parts, target in links:
        make_link(folder, parts, target)


def split_name(name: str) -> list[str]:
    parts = [part for part in name.split("/") if part not in ("", ".")]
    if name.startswith("/") or ".." in parts or "\0" in name or "\\" in name:
        raise TaskFailed("source_refused", f"{name[:200]!r} in the archive leads out of it.")
    if len(name) > LONGEST_NAME or len(parts) > DEEPEST:
        raise TaskFailed("source_refused", f"A name in the archive is too long: {name[:100]!r}…")
    return parts


def write_file(tar: tarfile.TarFile, member: tarfile.TarInfo, path: Path) -> None:
    source = tar.extractfile(member)
    if source is None or member.issparse():
        raise TaskFailed(
            "source_refused", f"{member.name[:200]!r} in the archive has no plain content."
        )
    path.parent.mkdir(parents=True, exist_ok=True)
    mode = 0o700 if member.mode & 0o100 else 0o600
    with open(
        os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, mode), "wb"
    ) as file:
        while True:
            data = source.read(COPY_BYTES)
            if not data:
                break
            file.write(data)


def make_link(folder: Path, parts: list[str], target: str) -> None:
    """Create a link. Its target goes up first and then down, and never above the folder, so it
    stays inside, also if it passes other links.
    """
    steps = [step for step in target.split("/") if step not in ("", ".")]
    up = 0
    while up < len(steps) and steps[up] == "..":
        up += 1
    if (
        target.startswith("/")
        or ".." in steps[up:]
        or up > len(parts) - 1
        or not parts
        or "\0" in target
    ):
        raise TaskFailed(
            "source_refused", f"The link {'/'.join(parts)!r} in the archive leads out of it."
        )
    path = folder.joinpath(*parts)
    if any(folder.joinpath(*parts[:length]).is_symlink() for length in range(1, len(parts))):
        raise TaskFailed(
            "source_refused", f"{'/'.join(parts)!r} in the archive lies behind a link."
        )
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.symlink_to(target)
    except OSError as error:
        raise TaskFailed(
            "source_refused", f"The archive names {'/'.join(parts)!r} twice."
        ) from error
