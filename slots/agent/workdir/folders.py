"""Folders of tasks. The agent never follows links that a task has made.

<claim>-<generation>/      the agent's; the task may enter but not list it; locked after the task
    src/ home/ tmp/ out/   the task's
    saved-plan plan.json   the agent's copies
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
from ..common.state import open_private
from ..processes.users import User

PARTS = ("src", "home", "tmp", "out")
COPY_BYTES = 1 << 20
DEEPEST = 128  # nested folders of a source; as many are open at once
MOST_ROUNDS = 1_000_000  # of a removal, if a process adds files all the time
LONGEST_TMP = 80  # characters: the path of a Unix socket in it has at most 107
FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
PLAIN = os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC


def choose_base(state: Path, option: str, is_separate: bool) -> Path:
    """The folder for tasks: in the state folder, unless the users of tasks have no access to it."""
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
            f"{base} belongs to another user. Remove it, or give another folder in --work."
        )
    if is_separate:
        base.chmod(0o711)
        state.chmod(0o711 if base.parent == state else 0o700)
        shut = [str(folder) for folder in base.resolve().parents if not is_open(folder)]
        if shut:
            raise Unusable(
                f"Users of tasks cannot enter {shut[0]}. Give a folder in --work that they can "
                "enter."
            )
    return base


def base_elsewhere(state: Path) -> Path:
    name = hashlib.sha256(str(state.resolve()).encode()).hexdigest()[:16]
    # choose_base checks the owner.
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

    def link_short_tmp(self) -> str:
        """A short link to `tmp`, if the path of a Unix socket in `tmp` would be too long; else
        empty.
        """
        if len(str(self.tmp)) <= LONGEST_TMP:
            return ""
        link = link_for(self.top)
        with contextlib.suppress(OSError):
            link.symlink_to(self.tmp)
        with contextlib.suppress(OSError):  # the link may be another user's
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
        self.link_short_tmp()  # `remove` also removed the link

    def chown(self, user: User | None) -> None:
        """Give the task's folders and files to this user."""
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
        """Write a new file in the source, never through a link."""
        with open_subfolder(self.source, inside) as handle, open_new(name, handle) as file:
            file.write(data)

    def digest_of(self, inside: str, name: str) -> str:
        """The digest of a file in the source; empty without the file."""
        try:
            with open_subfolder(self.source, inside) as handle, open_plain(name, handle) as file:
                return digest(file)
        except (OSError, TaskFailed):
            return ""

    def copy_output(self, name: str, to: Path, most: int, what: str, code: str) -> int:
        """Copy a file that the task left in `out`; returns its size, or -1 without the file."""
        try:
            handle = os.open(self.out, FOLDER)
        except OSError:
            return -1
        try:
            with open_plain(name, handle) as file:
                size = os.fstat(file.fileno()).st_size
                if size > most:
                    raise TaskFailed(
                        code, f"The {what} has {size:,} bytes, the limit of this pool is {most:,}."
                    )
                with open_private(to) as copy:
                    return copy_most(file, copy, size)
        except (FileNotFoundError, NotADirectoryError):
            return -1
        finally:
            os.close(handle)

    def copy_input(self, name: str, source: Path, user: User | None) -> None:
        """Copy a file of the agent into `out` for the task."""
        with open_subfolder(self.out, "") as handle, source.open("rb") as file, open_new(
            name, handle
        ) as copy:
            shutil.copyfileobj(file, copy, COPY_BYTES)
            if user:
                os.fchown(copy.fileno(), user.uid, user.gid)


@contextlib.contextmanager
def open_subfolder(base: Path, inside: str) -> Iterator[int]:
    """Open the folder `inside` of `base` step by step, through no link."""
    handle = os.open(base, FOLDER)
    try:
        for part in [part for part in inside.split("/") if part not in ("", ".")]:
            below = os.open(part, FOLDER, dir_fd=handle)
            os.close(handle)
            handle = below
        yield handle
    finally:
        os.close(handle)


def open_new(name: str, folder: int) -> IO[bytes]:
    """A new file in an open folder, which replaces a file or link of this name."""
    with contextlib.suppress(FileNotFoundError):
        os.unlink(name, dir_fd=folder)
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    return open(os.open(name, flags, 0o600, dir_fd=folder), "wb")


def open_plain(name: str, folder: int) -> IO[bytes]:
    """Open a regular file with one name: no link to another user's file, and no pipe or device."""
    try:
        handle = os.open(name, PLAIN, dir_fd=folder)
    except FileNotFoundError:
        raise
    except OSError as error:
        raise TaskFailed("exit_code", f"{name} is not a regular file: {error.strerror}.") from error
    found = os.fstat(handle)
    if not stat.S_ISREG(found.st_mode) or found.st_nlink != 1:
        os.close(handle)
        raise TaskFailed("exit_code", f"{name} is not a regular file.")
    return open(handle, "rb")


def copy_most(source: IO[bytes], target: IO[bytes], most: int) -> int:
    done = 0
    while done < most:
        data = source.read(min(COPY_BYTES, most - done))
        if not data:
            break
        target.write(data)
        done += len(data)
    return done


def digest(file: IO[bytes]) -> str:
    found = hashlib.sha256()
    while True:
        data = file.read(COPY_BYTES)
        if not data:
            return found.hexdigest()
        found.update(data)


def digest_file(path: Path) -> str:
    with path.open("rb") as file:
        return digest(file)


def chown_folder(
    handle: int, user: User, names: dict[tuple[int, int], int], depth: int = 0
) -> None:
    """Give a folder and its contents to a user: through no link, and no file that also has a name
    elsewhere.
    """
    if depth >= DEEPEST:
        raise TaskFailed(
            "source_refused", f"The folders of the source are nested more than {DEEPEST} deep."
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
    """Change the owner once all names of the file were seen. Until then the file may belong to
    another user, hard-linked by a task.
    """
    found = os.fstat(file)
    key = found.st_dev, found.st_ino
    names[key] = names.get(key, 0) + 1 if found.st_nlink > 1 else 1
    if stat.S_ISREG(found.st_mode) and names[key] >= found.st_nlink:
        os.fchown(file, user.uid, user.gid)


def link_for(top: Path) -> Path:
    """The path of the short link to a task's `tmp`. It depends only on the folder, so the next
    start of the agent finds and removes it.
    """
    return (
        Path(tempfile.gettempdir()) / f"berth-{hashlib.sha256(str(top).encode()).hexdigest()[:16]}"
    )


def remove(folder: Path) -> bool:
    """Remove a folder, also with inaccessible and deeply nested folders. False: files remain."""
    with contextlib.suppress(OSError):
        link = link_for(folder)
        # The sticky bit of the folder protects another user's link.
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
    """Remove the contents of a folder. Nested folders are moved to the top first, so that at most
    two folders are open.
    """
    prefix, number, most = f".gone-{os.urandom(8).hex()}-", 0, MOST_ROUNDS
    is_going = True
    while is_going and most:
        is_going, most = False, most - 1
        with os.scandir(top) as listed:
            entries = [(entry.name, entry.is_dir(follow_symlinks=False)) for entry in listed]
        for name, is_folder in entries:
            with contextlib.suppress(OSError):  # go on with the next entry
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
                                # A move needs the right to write to the moved folder.
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
    """Open a folder, through no link, and add the rights to remove its contents."""
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
    """Add the rights to enter a folder of this user, never through a link."""
    if hasattr(os, "O_PATH"):
        handle = os.open(name, os.O_PATH | FOLDER, dir_fd=inside)
        try:
            Path(f"/proc/self/fd/{handle}").chmod(0o700)
        finally:
            os.close(handle)
    else:
        os.chmod(name, 0o700, dir_fd=inside, follow_symlinks=False)


def rescued_folder(state: Path) -> Path:
    return state / "rescued"


def rescued_file(state: Path, name: str) -> Path:
    """`name` is that of a run: <claim>-<generation>."""
    return rescued_folder(state) / f"{name}.tfstate"


# Removes a folder: python -m slots.agent.workdir.folders <folder>
if __name__ == "__main__":
    sys.exit(0 if remove(Path(sys.argv[1])) else 1)
