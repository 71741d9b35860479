"""Which system user a task runs as. Where the agent is root, each running task has one of its own."""

from __future__ import annotations

import os
import pwd
import subprocess
import sys
import threading
from typing import NamedTuple

from .errors import Unusable

FIRST, LAST = 64_200, 65_199  # below 65,536, so that they exist in containers with their own range of users
BECOME = "import os, sys; u, g = map(int, sys.argv[1:]); os.setgroups([]); os.setgid(g); os.setuid(u)"
AUTO, SAME = "auto", "same"


class User(NamedTuple):
    uid: int
    gid: int


class TaskUsers:
    """`auto`: a number nobody else has while the task runs. `same`: the agent's own. Or one user for all tasks, by name or number."""

    def __init__(self, option: str) -> None:
        self.lock = threading.Lock()
        self.taken: set[int] = set()
        is_root = os.geteuid() == 0
        option = option or (AUTO if is_root else SAME)
        self.is_auto = option == AUTO
        self.fixed: User | None = None
        if option not in (AUTO, SAME):
            self.fixed = find_user(option)
        if not is_root and option not in (SAME, str(os.geteuid())) and self.fixed != User(os.geteuid(), os.getegid()):
            raise Unusable(f"--task-user {option}: only an agent that runs as root can run tasks as another user. Leave the option out.")
        if not is_root:
            self.fixed, self.is_auto = None, False

    @property
    def is_separate(self) -> bool:
        return self.is_auto or self.fixed is not None

    def take(self) -> User | None:
        if not self.is_auto:
            return self.fixed
        with self.lock:
            number = next(number for number in range(FIRST, LAST + 1) if number not in self.taken and not is_known(number))
            self.taken.add(number)
        return User(number, number)

    def check(self) -> None:
        """Not every container lets root become somebody else, or knows these numbers."""
        user = self.take()
        if user is None:
            return
        try:
            done = subprocess.run(
                [sys.executable, "-I", "-S", "-c", BECOME, str(user.uid), str(user.gid)], stderr=subprocess.PIPE, timeout=20, check=False
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            raise Unusable(f"Tasks cannot run as another user here: {error}.") from error
        finally:
            self.give_back(user)
        if done.returncode:
            why = done.stderr.decode("utf-8", "replace").strip().splitlines()[-1:]
            text = f"Tasks cannot run as user {user.uid} here ({''.join(why)[:200]})."
            raise Unusable(f"{text} Allow it (SETUID, SETGID, CHOWN), or say --task-user same: they could read the agent's token then.")

    def give_back(self, user: User | None) -> None:
        if user is not None:
            with self.lock:
                self.taken.discard(user.uid)


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
            raise Unusable(f"--task-user {option}: this machine knows no such user. Give one that it knows, or a number.") from None
        uid = gid = int(name)
    if group:
        if not group.isdigit():
            raise Unusable(f"--task-user {option}: give the group as a number.")
        gid = int(group)
    if uid == 0 or gid == 0:
        raise Unusable("--task-user: tasks of a root agent never run as root by that option. For that, say --task-user same.")
    return User(uid, gid)
