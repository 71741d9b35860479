"""A task's folder. Its top and what lies beside belong to the agent, so that nothing a task puts in
its way is followed or read by mistake.

<claim>-<generation>/    agent's; entered by the task, not listed; locked once the task is over
    src/ home/ tmp/ out/ the task's own
    saved-plan plan.json the agent's copies
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import stat
import sys
import tempfile
from pathlib import Path
from typing import IO, Iterator

from ..common.errors import TaskFailed, Unusable
from ..processes.users import User

PARTS = ("src", "home", "tmp", "out")
PIECE = 1 << 20
DEEPEST = 128  # folders in folders of a source: as many are open at once
MOST_ROUNDS = 1_000_000  # of a removal, should somebody add what it removes
LONGEST_TMP = 80  # characters: the path of a Unix socket in it has at most 107
FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
PLAIN = os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC


def choose_base(state: Path, option: str, is_separate: bool) -> Path:
    """Where tasks work: beside the state, unless their user could not get there."""
    base = Path(option) if option else state / "work"
    if (
        is_separate
        and not option
        and not all(is_open(folder) for folder in state.resolve().parents)
    ):
        base = base_elsewhere(state)
    try:
        base.mkdir(mode=0o711, parents=bool(option), exist_ok=True)
        found = os.lstat(base)
    except OSError as error:
        raise Unusable(
            f"Tasks cannot work in {base}: {error.strerror}. Give another folder in --work."
        ) from error
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid():
        raise Unusable(
            f"{base} is not this agent's own folder. Remove it, or give another one in --work."
        )
    if is_separate:
        base.chmod(0o711)
        state.chmod(0o711 if base.parent == state else 0o700)
        shut = [str(folder) for folder in base.resolve().parents if not is_open(folder)]
        if shut:
            raise Unusable(
                f"Users of tasks cannot enter {shut[0]}. Give a folder in --work that "
                "they can get to."
            )
    return base


def base_elsewhere(state: Path) -> Path:
    name = hashlib.sha256(str(state.resolve()).encode()).hexdigest()[:16]
    # Whose it is is checked before it is used.
    return Path(os.environ.get("BERTH_WORK") or "/var/tmp") / f"berth-agent-{name}"  # noqa: S108


def is_open(folder: Path) -> bool:
    return bool(folder.stat().st_mode & 0o001)


class Folder:
    def __init__(self, top: Path) -> None:
        self.top = top
        self.source, self.home, self.tmp, self.out = (top / part for part in PARTS)
        self.saved_plan = top / "saved-plan"
        self.plan_json = top / "plan.json"

    @property
    def is_there(self) -> bool:
        return self.source.is_dir()

    def name_sockets(self) -> str:
        """A short link to `tmp` where the path of a Unix socket in `tmp` itself would be too
        long; else empty.
        """
        if len(str(self.tmp)) <= LONGEST_TMP:
            return ""
        link = link_for(self.top)
        with contextlib.suppress(OSError):
            link.symlink_to(self.tmp)
        with contextlib.suppress(OSError):  # the name may be another user's
            if link.lstat().st_uid == os.geteuid() and os.path.realpath(link) == os.path.realpath(
                self.tmp
            ):
                return str(link)
        return ""

    def make(self) -> None:
        remove(self.top)
        self.top.mkdir(mode=0o711)
        for part in PARTS:
            (self.top / part).mkdir(mode=0o700)
        self.name_sockets()  # the removal above took the link along

    def chown(self, user: User | None) -> None:
        """All of it is this user's from here on."""
        self.top.chmod(0o711)
        if user is None:
            return
        names: dict[tuple[int, int], int] = {}
        for part in PARTS:
            handle = os.open(self.top / part, FOLDER)
            try:
                chown_folder(handle, user, names)
            finally:
                os.close(handle)

    def lock(self) -> None:
        with contextlib.suppress(OSError):
            self.top.chmod(0o700)

    def write(self, inside: str, name: str, data: bytes) -> None:
        """A new file in the source, never through a link."""
        with open_subfolder(self.source, inside) as handle:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(name, dir_fd=handle)
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
            with open(os.open(name, flags, 0o600, dir_fd=handle), "wb") as file:
                file.write(data)

    def digest_of(self, inside: str, name: str) -> str:
        """Of a file in the source. Empty: there is none."""
        try:
            with open_subfolder(self.source, inside) as handle, open_plain(name, handle) as file:
                return digest(file)
        except (OSError, TaskFailed):
            return ""

    def take_out(self, name: str, to: Path, most: int, what: str, code: str) -> int:
        """What the task left in `out`, copied for the agent. -1: there is none."""
        try:
            handle = os.open(self.out, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        except OSError:
            return -1
        try:
            with open_plain(name, handle) as file:
                size = os.fstat(file.fileno()).st_size
                if size > most:
                    raise TaskFailed(
                        code, f"The {what} has {size:,} bytes, the limit of this pool is {most:,}."
                    )
                with open(
                    os.open(to, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600), "wb"
                ) as copy:
                    return copy_most(file, copy, size)
        except (FileNotFoundError, NotADirectoryError):
            return -1
        finally:
            os.close(handle)

    def lay_out(self, name: str, source: Path, user: User | None) -> None:
        """The agent's copy, for the task to read."""
        handle = os.open(self.out, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(name, dir_fd=handle)
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
            with source.open("rb") as file, open(
                os.open(name, flags, 0o600, dir_fd=handle), "wb"
            ) as copy:
                shutil.copyfileobj(file, copy, PIECE)
                if user:
                    os.fchown(copy.fileno(), user.uid, user.gid)
        finally:
            os.close(handle)


@contextlib.contextmanager
def open_subfolder(base: Path, inside: str) -> Iterator[int]:
    """The folder `inside` of `base`, step by step, through no link."""
    handle = os.open(base, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        for part in [part for part in inside.split("/") if part not in ("", ".")]:
            below = os.open(
                part, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=handle
            )
            os.close(handle)
            handle = below
        yield handle
    finally:
        os.close(handle)


def open_plain(name: str, folder: int) -> IO[bytes]:
    """A plain file with one name: not a link to somebody else's, and nothing that waits
    when read.
    """
    try:
        handle = os.open(
            name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=folder
        )
    except FileNotFoundError:
        raise
    except OSError as error:
        raise TaskFailed("exit_code", f"{name} is no plain file: {error.strerror}.") from error
    found = os.fstat(handle)
    if not stat.S_ISREG(found.st_mode) or found.st_nlink != 1:
        os.close(handle)
        raise TaskFailed("exit_code", f"{name} is no plain file.")
    return open(handle, "rb")


def copy_most(source: IO[bytes], target: IO[bytes], most: int) -> int:
    done = 0
    while done < most:
        data = source.read(min(PIECE, most - done))
        if not data:
            break
        target.write(data)
        done += len(data)
    return done


def digest(file: IO[bytes]) -> str:
    found = hashlib.sha256()
    while True:
        data = file.read(PIECE)
        if not data:
            return found.hexdigest()
        found.update(data)


def digest_file(path: Path) -> str:
    with path.open("rb") as file:
        return digest(file)


def chown_folder(
    handle: int, user: User, names: dict[tuple[int, int], int], depth: int = 0
) -> None:
    """What lies in it, too, and nothing else: through no link, and no file that has a name
    elsewhere as well.
    """
    if depth >= DEEPEST:
        raise TaskFailed(
            "source_refused", f"Its folders lie more than {DEEPEST} deep in each other."
        )
    os.fchown(handle, user.uid, user.gid)
    for name in os.listdir(handle):
        found = os.stat(name, dir_fd=handle, follow_symlinks=False)
        if stat.S_ISDIR(found.st_mode):
            below = os.open(name, FOLDER, dir_fd=handle)
            try:
                chown_folder(below, user, names, depth + 1)
            finally:
                os.close(below)
        elif stat.S_ISREG(found.st_mode):
            file = os.open(name, PLAIN, dir_fd=handle)
            try:
                chown_file(file, user, names)
            finally:
                os.close(file)
        elif found.st_nlink == 1:
            os.chown(name, user.uid, user.gid, dir_fd=handle, follow_symlinks=False)


def chown_file(file: int, user: User, names: dict[tuple[int, int], int]) -> None:
    """Once all of its names were met. Until then it may be somebody else's, put there by a task."""
    found = os.fstat(file)
    key = found.st_dev, found.st_ino
    names[key] = names.get(key, 0) + 1 if found.st_nlink > 1 else 1
    if stat.S_ISREG(found.st_mode) and names[key] >= found.st_nlink:
        os.fchown(file, user.uid, user.gid)


def link_for(top: Path) -> Path:
    """The short name of a task's `tmp`. It is the same each time, so the next start of the agent
    removes it with the folder.
    """
    return (
        Path(tempfile.gettempdir()) / f"berth-{hashlib.sha256(str(top).encode()).hexdigest()[:16]}"
    )


def remove(folder: Path) -> bool:
    """Whatever a task made of it: folders without rights to enter, and any number of them in
    each other. False: something of it stays.
    """
    with contextlib.suppress(OSError):
        link = link_for(folder)
        # Another user's is kept by the sticky bit of its folder.
        if stat.S_ISLNK(link.lstat().st_mode):
            link.unlink()
    try:
        handle = open_to_empty(str(folder), None)
        try:
            empty(handle)
        finally:
            os.close(handle)
        folder.rmdir()
    except (OSError, RecursionError):
        pass
    try:
        return not folder.exists()
    except OSError:
        return False


def empty(top: int) -> None:
    """Folders in folders are moved up to the top first: there is no depth then, and two of them
    are open at most.
    """
    prefix, number, most = f".gone-{os.urandom(8).hex()}-", 0, MOST_ROUNDS
    is_going = True
    while is_going and most:
        is_going, most = False, most - 1
        with os.scandir(top) as listed:
            entries = [(entry.name, entry.is_dir(follow_symlinks=False)) for entry in listed]
        for name, is_folder in entries:
            with contextlib.suppress(OSError):  # the others go all the same
                if not is_folder:
                    os.unlink(name, dir_fd=top)
                    continue
                handle = open_to_empty(name, top)
                try:
                    with os.scandir(handle) as listed:
                        inside = [
                            (entry.name, entry.is_dir(follow_symlinks=False)) for entry in listed
                        ]
                    for below, is_below in inside:
                        with contextlib.suppress(OSError):
                            if is_below:
                                # Who may not write to a folder may not move it.
                                os.close(open_to_empty(below, handle))
                                number += 1
                                os.rename(
                                    below, f"{prefix}{number}", src_dir_fd=handle, dst_dir_fd=top
                                )
                                is_going = True
                            else:
                                os.unlink(below, dir_fd=handle)
                finally:
                    os.close(handle)
                os.rmdir(name, dir_fd=top)


def open_to_empty(name: str, inside: int | None) -> int:
    """A folder, opened through no link and with the rights to remove what lies in it."""
    try:
        handle = os.open(name, FOLDER, dir_fd=inside)
    except PermissionError:
        unlock(name, inside)
        handle = os.open(name, FOLDER, dir_fd=inside)
    with contextlib.suppress(OSError):
        if os.fstat(handle).st_mode & 0o700 != 0o700:
            os.fchmod(handle, 0o700)
    return handle


def unlock(name: str, inside: int | None) -> None:
    """One's own folder that one may not open. Never what a link of this name leads to."""
    if hasattr(os, "O_PATH"):
        handle = os.open(
            name, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=inside
        )
        try:
            Path(f"/proc/self/fd/{handle}").chmod(0o700)
        finally:
            os.close(handle)
    else:
        os.chmod(name, 0o700, dir_fd=inside, follow_symlinks=False)


def rescued_folder(state: Path) -> Path:
    return state / "rescued"


def rescued_file(state: Path, name: str) -> Path:
    """`name`: of a run, as claim-generation."""
    return rescued_folder(state) / f"{name}.tfstate"


# For others who have such folders: python -m slots.agent.workdir.folders <folder>
if __name__ == "__main__":
    sys.exit(0 if remove(Path(sys.argv[1])) else 1)
