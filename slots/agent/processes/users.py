"""Which system user a task runs as. Where the agent is root, each running task has one
of its own.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import pwd
import stat
import subprocess
import sys
import threading
from pathlib import Path
from typing import NamedTuple

from ..common.errors import Unusable
from .process_table import BECOME, end_all, kill_user, list_owned

# Below 65,536, so that they exist in containers with their own range of users.
FIRST, LAST = 64_200, 65_199
# Whose it is is checked before it is used.
LOCKS = (Path("/run/berth-agent-users"), Path("/var/tmp/berth-agent-users"))  # noqa: S108
AUTO, SAME = "auto", "same"
STRAY_GRACE = 10.0


class User(NamedTuple):
    uid: int
    gid: int
    is_its_own: bool = False  # one task's, while it runs: all that this user has is the task's
    lock: int = -1  # held as long as it is, also by reapers that outlive the agent


class TaskUsers:
    """`auto`: a number nobody else has while the task runs, on all agents of this machine. `same`:
    the agent's own.
    Or one user for all tasks, by name or number."""

    def __init__(self, option: str) -> None:
        self.lock = threading.Lock()
        self.taken: dict[int, int] = {}  # number: the lock that says so to other agents
        is_root = os.geteuid() == 0
        option = option or (AUTO if is_root else SAME)
        self.is_auto = option == AUTO
        self.fixed: User | None = None
        if option not in (AUTO, SAME):
            self.fixed = find_user(option)
        if (
            not is_root
            and option not in (SAME, str(os.geteuid()))
            and self.fixed != User(os.geteuid(), os.getegid())
        ):
            raise Unusable(
                f"--task-user {option}: only an agent that runs as root can run tasks as another "
                "user. Leave the option out."
            )
        if not is_root:
            self.fixed, self.is_auto = None, False
        self.locks = find_locks() if self.is_auto else None

    @property
    def is_separate(self) -> bool:
        return self.is_auto or self.fixed is not None

    def take(self) -> User | None:
        if self.locks is None:
            return self.fixed
        with self.lock:
            for number in range(FIRST, LAST + 1):
                handle = (
                    None
                    if number in self.taken or is_known(number)
                    else lock_number(self.locks, number)
                )
                if handle is None:
                    continue
                # Left by an agent that died, or in a container with an agent of its own.
                if not any(list_owned((number,))):
                    kill_user(number)  # whoever forks too fast to be seen
                    self.taken[number] = handle
                    return User(number, number, is_its_own=True, lock=handle)
                os.close(handle)
        raise Unusable(f"No user is free for a task: all numbers from {FIRST} to {LAST} are taken.")

    def check(self) -> None:
        """Not every container lets root become somebody else, or knows these numbers."""
        if self.is_auto:
            end_strays()
        user = self.take()
        if user is None:
            return
        try:
            done = subprocess.run(
                [sys.executable, "-I", "-S", "-c", BECOME, str(user.uid), str(user.gid)],
                stderr=subprocess.PIPE,
                timeout=20,
                check=False,
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            raise Unusable(f"Tasks cannot run as another user here: {error}.") from error
        finally:
            self.release(user)
        if done.returncode:
            why = done.stderr.decode("utf-8", "replace").strip().splitlines()[-1:]
            text = f"Tasks cannot run as user {user.uid} here ({''.join(why)[:200]})."
            raise Unusable(
                f"{text} Allow it (SETUID, SETGID, CHOWN), or say --task-user same: they could "
                "read the agent's token then."
            )

    def release(self, user: User | None) -> None:
        if user is None or user.uid not in self.taken:
            return
        # Else they cannot be killed, or it is a container's too: who takes it next will see.
        if not any(list_owned((user.uid,))):
            kill_user(user.uid)
        with self.lock:
            os.close(self.taken.pop(user.uid))


def find_locks() -> Path:
    """The folder with the locks of all agents of this machine. Agents that see different ones do
    not know of each other.
    """
    reasons = []
    for place in LOCKS:
        try:
            with contextlib.suppress(FileExistsError):
                place.mkdir(mode=0o700)
            found = os.lstat(place)
        except OSError as error:
            reasons.append(f"{place}: {error.strerror}")
            continue
        if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid() or found.st_mode & 0o077:
            reasons.append(f"{place} is not this user's own folder, shut to others")
        elif not os.access(place, os.W_OK):
            reasons.append(f"{place} cannot be written to")
        else:
            return place
    raise Unusable(
        f"Agents cannot tell each other which users their tasks have: {'; '.join(reasons)}. Or "
        "give --task-user one user."
    )


def lock_number(locks: Path, number: int) -> int | None:
    """None: another agent has it. The file stays: who removed it would let two have it."""
    handle = os.open(
        locks / str(number), os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600
    )
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(handle)
        return None
    return handle


def end_strays(grace: float = STRAY_GRACE) -> bool:
    """What still runs of tasks whose agents have died, whatever it did to be forgotten: nobody
    holds its number. False: some stays.
    """
    if os.geteuid() != 0:
        return True
    try:
        locks = find_locks()
    except Unusable:
        return True  # then nobody has had such numbers
    held: dict[int, int] = {}
    try:
        for number in sorted(
            {one.uid for one in list_owned(range(FIRST, LAST + 1)) if not one.is_elsewhere}
        ):
            handle = None if is_known(number) else lock_number(locks, number)
            if handle is not None:
                held[number] = handle
        return not held or end_all(None, "", grace, users=frozenset(held))
    finally:
        for handle in held.values():
            os.close(handle)


def is_known(number: int) -> bool:
    try:
        pwd.getpwuid(number)
    except KeyError:
        return False
    return True


def find_user(option: str) -> User:
    name, _, group = option.partition(":")
    try:
        entry = pwd.getpwuid(int(name)) if name.isdigit() else pwd.getpwnam(name)
        uid, gid = entry.pw_uid, entry.pw_gid
    except KeyError:
        if not name.isdigit():
            raise Unusable(
                f"--task-user {option}: this machine knows no such user. Give one that it "
                "knows, or a number."
            ) from None
        uid = gid = int(name)
    if group:
        if not group.isdigit():
            raise Unusable(f"--task-user {option}: give the group as a number.")
        gid = int(group)
    if uid == 0 or gid == 0:
        raise Unusable(
            "--task-user: tasks of a root agent never run as root by that option. For that, say "
            "--task-user same."
        )
    return User(uid, gid)
