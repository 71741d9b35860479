"""Folders in which providers keep the processes of members on this machine: one folder for each
member, below a folder of the provider.
"""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from pools.providers.base import MemberSnapshot, PoolSnapshot
from project.kernel.embedded import detached
from project.kernel.outbox.operations import ConflictError
from project.kernel.security.private_files import write_private


def name_folder(top: Path, pool: PoolSnapshot, member: MemberSnapshot) -> Path:
    """The names are for people. The number tells member c of pool a-b from member b-c of pool a."""
    return top / f"{pool.name}-{member.name}.{member.id}"


def member_of(folder: Path) -> int | None:
    number = folder.name.rpartition(".")[2]
    return int(number) if number.isascii() and number.isdigit() else None


def pool_file(folder: Path) -> Path:
    return folder / "pool"


def write_pool(folder: Path, pool: PoolSnapshot) -> None:
    """Record the pool of the folder: names of pools and members do not tell it exactly."""
    if not pool_file(folder).exists():
        write_private(pool_file(folder), f"{pool.id}\n")


def list_strays(top: Path, pool: PoolSnapshot) -> dict[int, Path]:
    """Folders of this pool whose members are not in the snapshot, by the id of the member."""
    members = {member.id for member in pool.members}
    found = {}
    for folder in sorted(top.glob(f"{pool.name}-*.*")):
        member_id = member_of(folder)
        if member_id is None or member_id in members:
            continue
        with suppress(*detached.GONE):  # or the folder is from a version that recorded no pool
            if pool_file(folder).read_text() == f"{pool.id}\n":
                found[member_id] = folder
    return found


@contextmanager
def start_lock(folder: Path) -> Iterator[None]:
    """Lock the start of a member's process. Raises ConflictError if another worker starts it; a
    retry finds the process started.
    """
    with open(os.open(folder / "starting.lock", os.O_RDWR | os.O_CREAT, 0o600), "r+") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise ConflictError(f"Another process is starting the one in {folder}.") from None
        yield
