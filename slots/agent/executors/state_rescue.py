"""The state that a backend did not take: the program leaves it in its folder, which goes. It is
the only copy of what is true now.
"""

from __future__ import annotations

import contextlib
import os
import stat
from pathlib import Path
from typing import TYPE_CHECKING

from ..common.state import Record
from ..workdir.folders import PLAIN, open_subfolder, rescued_file

if TYPE_CHECKING:
    from .job import Job

RESCUED = "errored.tfstate"
LARGEST = 256_000_000
PIECE = 1 << 20


class NotPlain(Exception):
    """What lies there is no plain file of one name."""


def mark_state(job: Job) -> None:
    """Before the apply: where it would lie, and whether one lies there already. Written down
    with the process that begins.
    """
    source = os.path.realpath(job.folder.source)
    inside = os.path.relpath(os.path.realpath(job.cwd), source)
    job.record.extra["state"] = [source, inside, stamp_of(Path(source), inside)]


def rescue_state(state: Path, record: Record) -> str:
    """Where it is kept from here on; empty: there is none. The task may have planted a link
    there: only a plain file of one name counts.
    """
    source, inside, before = record.extra.get("state") or ("", "", "")
    if not source or stamp_of(Path(source), inside) in ("", before):
        return ""
    kept = rescued_file(state, record.name)
    # What bears the final name is whole, and is uploaded.
    partial = kept.with_name(f"{record.name}.part")
    is_whole = False
    with contextlib.suppress(OSError, NotPlain), open_subfolder(Path(source), inside) as folder:
        kept.parent.mkdir(mode=0o700, exist_ok=True)
        try:
            copy(folder, partial)
        except OSError:  # a full disk has room for a name
            take(folder, partial)
        is_whole = True
    if not is_whole:
        with contextlib.suppress(OSError):
            partial.unlink()
        return ""
    partial.replace(kept)
    record.extra["rescued"] = str(kept)
    return str(kept)


def is_left_behind(state: Path, record: Record) -> bool:
    """A failed apply has left a state in its folder that could not be rescued yet: the folder
    must stay.
    """
    source, inside, before = record.extra.get("state") or ("", "", "")
    is_applied = (record.result or {}).get("outcome") == "applied"
    if (
        not source
        or is_applied
        or record.extra.get("rescued")
        or rescued_file(state, record.name).is_file()
    ):
        return False
    return stamp_of(Path(source), inside) not in ("", before)


def copy(folder: int, kept: Path) -> None:
    """As large as it is when it is opened: what is left of the task may still write to it, or
    put another in its place.
    """
    handle = os.open(RESCUED, PLAIN, dir_fd=folder)
    about = os.fstat(handle)
    if not is_plain(about):
        os.close(handle)
        raise NotPlain
    with open(handle, "rb") as data:
        with open(
            os.open(kept, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600), "wb"
        ) as into:
            left = about.st_size
            while left > 0 and (piece := data.read(min(left, PIECE))):
                into.write(piece)
                left -= len(piece)
            into.flush()
            os.fsync(into.fileno())


def take(folder: int, kept: Path) -> None:
    kept.unlink(missing_ok=True)  # half of it would look like all of it
    os.replace(RESCUED, kept, src_dir_fd=folder)
    if not is_plain(kept.lstat()):
        kept.unlink()
        raise NotPlain


def stamp_of(source: Path, inside: str) -> str:
    """Which file it is; empty: there is none that could be one."""
    with contextlib.suppress(OSError), open_subfolder(source, inside) as folder:
        found = os.stat(RESCUED, dir_fd=folder, follow_symlinks=False)
        if is_plain(found):
            return f"{found.st_ino}.{found.st_mtime_ns}.{found.st_size}"
    return ""


def is_plain(found: os.stat_result) -> bool:
    return stat.S_ISREG(found.st_mode) and found.st_nlink == 1 and found.st_size <= LARGEST
