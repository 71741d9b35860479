"""Decides how tasks on this machine are kept from Berth's own passwords, keys and tokens.

Where Berth runs as root, each task has a system user of its own. Elsewhere tasks run as Berth's
user, and each has namespaces of its own (slots/agent/processes/isolation.py) where the kernel
allows them. Without either, agents start only if Berth listens on loopback and one person can start
tasks, or if BERTH_TRUST_CLAIMANTS says that every claimant is trusted.
"""

import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Literal

from django.conf import settings

PROBE = "slots.agent.processes.namespaces"  # module to run
TRIES = 20.0  # seconds for the probe
WAY_OUT = (
    "Let the kernel give ordinary users namespaces (sysctl "
    "kernel.apparmor_restrict_unprivileged_userns=0, or kernel.unprivileged_userns_clone=1), start "
    "Berth as root, or set BERTH_TRUST_CLAIMANTS=1 if all claimants may read Berth’s passwords "
    "and keys."
)

Kind = Literal["users", "namespaces", "none"]


@dataclass(frozen=True, slots=True)
class Protection:
    kind: Kind
    why: str = ""  # why there are no namespaces
    is_trusted: bool = False  # BERTH_TRUST_CLAIMANTS

    @property
    def words(self) -> str:
        match self.kind:
            case "users":
                return (
                    "Each task runs as a system user of its own, who cannot read Berth’s "
                    "passwords and keys."
                )
            case "namespaces":
                return (
                    "Each task runs in namespaces of its own, in which Berth’s state and "
                    "processes are hidden."
                )
        unsafe = "Tasks run as Berth’s own user and can read its passwords and keys"
        if self.is_trusted:
            return f"{unsafe}: BERTH_TRUST_CLAIMANTS says that every claimant is trusted."
        return f"{unsafe}: the kernel gives them no namespaces ({self.why})."


def find_protection() -> Protection:
    """The protection that an agent started now would have."""
    if is_root():
        return Protection("users")
    if settings.BERTH_TRUST_CLAIMANTS:
        return Protection("none", is_trusted=True)
    why = probe(str(settings.BERTH_HOME))
    return Protection("none", why) if why else Protection("namespaces")


def is_root() -> bool:
    return os.geteuid() == 0


@cache
def probe(home: str) -> str:
    """Why tasks cannot have namespaces here; empty: they can. Cached, because the kernel and its
    settings seldom change.
    """
    command = [sys.executable, "-m", PROBE, home if Path(home).is_dir() else os.devnull]
    try:
        done = subprocess.run(
            command,
            cwd=settings.BASE_DIR,
            capture_output=True,
            text=True,
            timeout=TRIES,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"they could not be tried: {error}"
    if not done.stdout and done.returncode:
        return f"they could not be tried: {done.stderr.strip()[-200:]}"
    return done.stdout.strip().removeprefix("Namespaces for tasks: ")


def why_refused(protection: Protection, claimants: Sequence[str]) -> str:
    """Why agents are not started with this protection; empty: they are started. `claimants`:
    people who may start tasks in the pool.
    """
    if protection.kind != "none" or protection.is_trusted:
        return ""
    if not settings.BERTH_IS_LOOPBACK:
        return f"{protection.words} Berth listens on more than loopback, so agents are not started."
    if len(claimants) > 1:
        return (
            f"{protection.words} {len(claimants)} people may start tasks in this pool, so agents "
            "are not started."
        )
    return ""


def describe(protection: Protection, claimants: Sequence[str]) -> str:
    """Sentences on the active protection and its consequences."""
    if refused := why_refused(protection, claimants):
        return f"{refused} {WAY_OUT}"
    if protection.kind == "none" and not protection.is_trusted:
        alone = "Only one person can start tasks in this pool, so agents start all the same."
        return f"{protection.words} {alone} Before further people may claim here: {WAY_OUT}"
    return protection.words
