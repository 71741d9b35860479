"""Folders of forwarders: the processes that run there, and removal."""

import json
import os
import shutil
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from django.conf import settings

from pools.providers.base import MemberSnapshot, PoolSnapshot
from pools.providers.member_folders import name_folder
from project.kernel.embedded import detached
from project.kernel.embedded.detached import Process
from project.kernel.outbox.operations import ProviderError
from project.kernel.security.private_files import write_private

PROGRAM = "pools.providers.forwarder.process"  # module to run
FOLDER = "forwarders"
STARTS = "starts.json"
ENDED = "ended.json"  # the process writes it if its end was asked for
ASKED = "it was asked to end"
LOG = "forwarder.log"
MOST_STARTS = 10
PATIENCE = 5.0  # seconds between asking a forwarder to end and killing it
SILENT = 30.0  # seconds without an answer after which a forwarder counts as stuck
RECENT = 600.0  # seconds in which starts count, and in which a delayed worker is recognised
PAUSES = (0.0, 1.0, 5.0, 15.0, 60.0)  # seconds before each further start among recent ones
# Variables that a forwarder gets from Berth's environment. It needs no secret.
PASSED_ON = (
    "PATH", "LANG", "LC_ALL", "LC_CTYPE", "TZ", "PYTHONPYCACHEPREFIX", "PYTHONDONTWRITEBYTECODE",
)  # fmt: skip


def forwarders_home() -> Path:
    return Path(settings.BERTH_HOME) / FOLDER


def folder_of(pool: PoolSnapshot, member: MemberSnapshot) -> Path:
    return name_folder(forwarders_home(), pool, member)


def make_folder(folder: Path) -> None:
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    for each in (folder.parent, folder):
        each.chmod(0o700)


def find_process(folder: Path, incarnation: int) -> Process | None:
    """The running forwarder of a folder, else the last one."""
    known = detached.read(folder)
    if known is not None and detached.is_alive(known):
        return known
    # Also with a record: a worker may have died before it recorded the next process.
    found = detached.find(folder, incarnation_in)
    if found is None:
        return known
    if folder.exists():
        detached.adopt(folder, found)
    return found


def list_starts(folder: Path) -> list[float]:
    """When recent forwarders of this folder were started, by the clock."""
    with suppress(*detached.GONE, ValueError):
        found = json.loads((folder / STARTS).read_text())
        if isinstance(found, list):
            now = time.time()
            return [at for at in found if isinstance(at, float) and 0 <= now - at < RECENT]
    return []


def pause_before_start(folder: Path) -> float:
    """Seconds until a forwarder that ended may be started again. A forwarder that was asked to end
    has not failed.
    """
    starts = list_starts(folder)
    if not starts or (folder / ENDED).exists():
        return 0.0
    pause = PAUSES[min(len(starts), len(PAUSES)) - 1]
    return max(0.0, pause - (time.time() - starts[-1]))


def start_process(folder: Path, incarnation: int) -> Process:
    write_private(folder / STARTS, json.dumps([*list_starts(folder), time.time()][-MOST_STARTS:]))
    (folder / ENDED).unlink(missing_ok=True)
    (folder / "silent").unlink(missing_ok=True)
    return detached.start(
        [sys.executable, "-m", PROGRAM, "--state", str(folder), "--incarnation", str(incarnation)],
        folder,
        log=folder / LOG,
        environment={name: os.environ[name] for name in PASSED_ON if name in os.environ}
        | {"PYTHONUNBUFFERED": "1", "MALLOC_ARENA_MAX": "2"},
        cwd=settings.BASE_DIR,
        mark=incarnation,
    )


def incarnation_in(words: Sequence[str]) -> int | None:
    """The incarnation of the forwarder with this command line; None: it is no forwarder."""
    if PROGRAM not in words or "--incarnation" not in words[:-1]:
        return None
    number = words[words.index("--incarnation") + 1]
    return int(number) if number.isdigit() else None


def why_ended(folder: Path, process: Process | None) -> str:
    if process is None:
        return "no process runs"
    if not detached.is_of_this_boot(process):
        return "the machine was restarted"
    return ASKED if _was_asked(folder, process) else "its process has ended"


def _was_asked(folder: Path, process: Process) -> bool:
    with suppress(*detached.GONE, ValueError):
        ended = json.loads((folder / ENDED).read_text())
        return isinstance(ended, dict) and ended.get("pid") == process.pid
    return False


def record_answer(folder: Path, *, answered: bool) -> bool:
    """Keep since when a forwarder has not answered. True: it counts as stuck."""
    file = folder / "silent"
    if answered:
        file.unlink(missing_ok=True)
        return False
    try:
        return time.time() - file.stat().st_mtime > SILENT
    except FileNotFoundError:
        file.touch(0o600)
        return False


def end_process(folder: Path, process: Process) -> None:
    if not detached.end(process, PATIENCE):
        raise ProviderError(f"The forwarder in {folder} does not end.")


def remove(folder: Path) -> None:
    """End the forwarder of a folder, and remove the folder. Idempotent."""
    for process in (detached.read(folder), detached.find(folder, incarnation_in)):
        if process is not None:
            end_process(folder, process)
    with suppress(FileNotFoundError):
        shutil.rmtree(folder)
