"""Rescues a Terraform state that the backend did not accept.

Terraform leaves the state in the folder of the task, which is deleted later. The file is the only
copy of the current state.
"""

from __future__ import annotations

import contextlib
import os
import stat
from pathlib import Path
from typing import TYPE_CHECKING

from ..common.state import Record, open_private
from ..workdir.folders import PLAIN, open_subfolder, rescued_file

if TYPE_CHECKING:
    from .job import Job

RESCUED = "errored.tfstate"
LARGEST = 256_000_000
COPY_BYTES = 1 << 20


class NotPlain(Exception):
    """The entry is not a regular file with one name."""


def mark_state(job: Job) -> None:
    """Note, before the apply, where Terraform would leave a state and which file is there already.
    The record is saved when the process starts.
    """
    source = os.path.realpath(job.folder.source)
    inside = os.path.relpath(os.path.realpath(job.cwd), source)
    job.record.extra["state"] = [source, inside, stamp_of(Path(source), inside)]


def rescue_state(state: Path, record: Record) -> str:
    """Copy a state that the apply left to the agent's folder; returns its path, or "" without a
    state. Only a regular file with one name counts, because the task may have planted a link.
    """
    source, inside, before = record.extra.get("state") or ("", "", "")
    if not source or stamp_of(Path(source), inside) in ("", before):
        return ""
    kept = rescued_file(state, record.name)
    # A file with the final name is complete and is uploaded.
    partial = kept.with_name(f"{record.name}.part")
    is_whole = False
    with contextlib.suppress(OSError, NotPlain), open_subfolder(Path(source), inside) as folder:
        kept.parent.mkdir(mode=0o700, exist_ok=True)
        try:
            copy(folder, partial)
        except OSError:  # the disk may be full; a rename needs no room
            move_plain(folder, partial)
        is_whole = True
    if not is_whole:
        with contextlib.suppress(OSError):
            partial.unlink()
        return ""
    partial.replace(kept)
    record.extra["rescued"] = str(kept)
    return str(kept)


def is_left_behind(state: Path, record: Record) -> bool:
    """Whether a failed apply left a state that could not be rescued yet, so its folder must
    stay.
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
    """Copy the state in the size that it has when it is opened: processes left of the task may
    still write to the file or replace it.
    """
    handle = os.open(RESCUED, PLAIN, dir_fd=folder)
    about = os.fstat(handle)
    if not is_plain(about):
        os.close(handle)
        raise NotPlain
    with open(handle, "rb") as data:
        with open_private(kept) as into:
            left = about.st_size
            while left > 0 and (piece := data.read(min(left, COPY_BYTES))):
                into.write(piece)
                left -= len(piece)
            into.flush()
            os.fsync(into.fileno())


def move_plain(folder: int, kept: Path) -> None:
    kept.unlink(missing_ok=True)  # remove the incomplete copy
    os.replace(RESCUED, kept, src_dir_fd=folder)
    if not is_plain(kept.lstat()):
        kept.unlink()
        raise NotPlain


def stamp_of(source: Path, inside: str) -> str:
    """Identifies the state file by inode, time and size; "" without a regular file."""
    with contextlib.suppress(OSError), open_subfolder(source, inside) as folder:
        found = os.stat(RESCUED, dir_fd=folder, follow_symlinks=False)
        if is_plain(found):
            return f"{found.st_ino}.{found.st_mtime_ns}.{found.st_size}"
    return ""


def is_plain(found: os.stat_result) -> bool:
    return stat.S_ISREG(found.st_mode) and found.st_nlink == 1 and found.st_size <= LARGEST
