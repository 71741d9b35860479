"""System users of tasks. If the agent is root, each running task has its own user id."""

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

# Below 65,536, so that the ids exist in containers with their own range of users.
FIRST, LAST = 64_200, 65_199
# find_locks checks the owner of the folder.
LOCKS = (Path("/run/berth-agent-users"), Path("/var/tmp/berth-agent-users"))  # noqa: S108
AUTO, SAME = "auto", "same"
STRAY_GRACE = 10.0


class User(NamedTuple):
    uid: int
    gid: int
    is_its_own: bool = False  # only one running task has this user
    lock: int = -1  # descriptor; reapers that outlive the agent hold it, too


class TaskUsers:
    """Users for tasks. `auto`: each task has an id that no other task on this machine has, also of
    other agents. `same`: the user of the agent. Otherwise one user for all tasks, by name or id.
    """

    def __init__(self, option: str) -> None:
        self.lock = threading.Lock()
        self.taken: dict[int, int] = {}  # user id -> descriptor of its lock
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

    def acquire(self) -> User | None:
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
                # Processes may be left by a dead agent, or run in a container with its own agent.
                if not any(list_owned((number,))):
                    kill_user(number)  # processes that fork too fast for list_owned
                    self.taken[number] = handle
                    return User(number, number, is_its_own=True, lock=handle)
                os.close(handle)
        raise Unusable(f"No user is free for a task: all numbers from {FIRST} to {LAST} are taken.")

    def check(self) -> None:
        """Test whether a process can change to a task's user. Some containers forbid it or lack
        these ids.
        """
        if self.is_auto:
            end_strays()
        user = self.acquire()
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
            raise Unusable(
                f"Tasks cannot run as user {user.uid} here ({''.join(why)[:200]}). Allow the "
                "capabilities SETUID, SETGID and CHOWN, or use --task-user same; tasks can then "
                "read the agent's token."
            )

    def release(self, user: User | None) -> None:
        if user is None or user.uid not in self.taken:
            return
        # Remaining processes cannot be killed, or belong to a container; `acquire` checks again.
        if not any(list_owned((user.uid,))):
            kill_user(user.uid)
        with self.lock:
            os.close(self.taken.pop(user.uid))


def find_locks() -> Path:
    """The folder with the locks of all agents of this machine. Raises Unusable without one."""
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
            reasons.append(f"{place} is not a folder of this user with mode 700")
        elif not os.access(place, os.W_OK):
            reasons.append(f"{place} cannot be written to")
        else:
            return place
    raise Unusable(
        f"The agent cannot lock user ids for tasks: {'; '.join(reasons)}. Repair one of the "
        "folders, or name one user in --task-user."
    )


def lock_number(locks: Path, number: int) -> int | None:
    """Lock a user id; None: another agent has it. The file is never removed, because a removal
    would let two agents lock the same id.
    """
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
    """End processes of tasks of dead agents: no agent or reaper holds the lock of their user.
    False: processes remain.
    """
    if os.geteuid() != 0:
        return True
    try:
        locks = find_locks()
    except Unusable:
        return True  # without locks, no task had its own user
    held: dict[int, int] = {}
    try:
        for number in sorted(
            {each.uid for each in list_owned(range(FIRST, LAST + 1)) if not each.is_elsewhere}
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
                f"--task-user {option}: this machine has no such user. Name another user, or give "
                "a user id."
            ) from None
        uid = gid = int(name)
    if group:
        if not group.isdigit():
            raise Unusable(f"--task-user {option}: give the group as a number.")
        gid = int(group)
    if uid == 0 or gid == 0:
        raise Unusable(
            "--task-user: this option does not run tasks as root. Use --task-user same for that."
        )
    return User(uid, gid)
