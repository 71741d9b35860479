"""The state folder of the agent: one file for each run, written before each step of the run.

A run goes through accepted, launching, running, finished and reported. After a restart, a run in
`launching` or `running` may have run.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import secrets
import threading
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import IO, Any, Collection

from .errors import Unusable

ACCEPTED, LAUNCHING, RUNNING = "accepted", "launching", "running"
FINISHED, REPORTED = "finished", "reported"
LOST, NOT_STARTED = "lost", "not_started"
MOST_REPORTED = 1000  # records of reported runs; the server does not ask for older ones
MOST_KEPT = 50  # folders of plans


@dataclass
class Record:
    claim: int
    generation: int
    step: str
    slot: int
    place: str = ""
    task: str = ""
    phase: str = ACCEPTED
    stage: str = ""  # the program that ran last: init, plan, apply, ...
    pid: int = 0
    pid_start: str = ""
    status: str = ""  # after a restart: lost, not_started
    result: dict[str, Any] | None = None
    digest: str = ""  # of the plan
    has_plan: bool = False  # the run has a saved plan to upload, or to keep for the apply
    has_json: bool = False
    keep: bool = False  # the apply needs the folder
    log_next: int = 0
    extra: dict[str, Any] = field(default_factory=dict)

    @property
    def key(self) -> tuple[int, int]:
        return self.claim, self.generation

    @property
    def name(self) -> str:
        return f"{self.claim}-{self.generation}"

    def mark(self, identity: str) -> str:
        """The mark of the run's processes, on the agent with this identity."""
        return f"{self.claim}.{self.generation}.{identity}"

    @property
    def path(self) -> str:
        return f"tasks/{self.claim}/{self.generation}/"

    @property
    def fate(self) -> str:
        """The status of a run that this agent did not finish. An apply changes resources only in
        its stage `apply`.
        """
        return (
            NOT_STARTED
            if self.phase == ACCEPTED or (self.step == "apply" and self.stage != "apply")
            else LOST
        )


class State:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.runs = folder / "runs"
        self.log_folders = folder / "spool"
        try:
            for path in (folder, self.runs, self.log_folders):
                path.mkdir(mode=0o700, parents=True, exist_ok=True)
            self.handle = os.open(folder / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise Unusable(
                f"The state folder {folder} cannot be used: {error.strerror}. Give a folder of the "
                "agent's own in --state."
            ) from error
        self.records: dict[tuple[int, int], Record] = {}
        self.guard = threading.RLock()  # runs save from threads of their own

    def lock(self) -> None:
        try:
            fcntl.flock(self.handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            other = os.pread(self.handle, 20, 0).decode("ascii", "replace").strip()
            raise Unusable(
                f"Another agent{f' (process {other})' if other else ''} uses the state folder "
                f"{self.folder}. Stop that agent, or give this one another folder in --state.",
                4,
            ) from error
        os.ftruncate(self.handle, 0)
        os.pwrite(self.handle, str(os.getpid()).encode(), 0)

    def identify(self) -> str:
        """The permanent id of this folder, which marks the processes of its tasks."""
        path = self.folder / "id"
        try:
            known = path.read_text().strip()
            if len(known) == 16:
                return known
        except OSError:
            pass
        fresh = secrets.token_hex(8)
        write_whole(path, fresh.encode())
        return fresh

    def load(self) -> list[str]:
        """Load all records. Returns the names of unreadable files; their runs count as having
        run.
        """
        broken = []
        known = {item.name for item in fields(Record)}
        for path in sorted(self.runs.glob("*.json")):
            claim, _, generation = path.stem.partition("-")
            if not (claim.isdigit() and generation.isdigit()):
                continue
            try:
                body = json.loads(path.read_bytes())
                record = Record(**{name: value for name, value in body.items() if name in known})
                if record.key != (int(claim), int(generation)):
                    raise ValueError("record of another run")
            except (OSError, ValueError, TypeError, AttributeError):
                broken.append(path.name)
                record = Record(int(claim), int(generation), "", 0, phase=RUNNING)
            self.records[record.key] = record
        return broken

    def get(self, claim: int, generation: int) -> Record | None:
        return self.records.get((claim, generation))

    def save(self, record: Record) -> None:
        with self.guard:
            write_whole(self.runs / f"{record.name}.json", json.dumps(asdict(record)).encode())
            self.records[record.key] = record

    def list_records(self) -> list[Record]:
        with self.guard:
            return list(self.records.values())

    def forget(self, record: Record) -> None:
        with self.guard:
            self.records.pop(record.key, None)
            (self.runs / f"{record.name}.json").unlink(missing_ok=True)

    def kept(self, claim: int, digest: str) -> Record | None:
        """The record of this plan, if the agent still has its folder."""
        for record in sorted(self.list_records(), key=lambda record: -record.generation):
            if (
                record.claim == claim
                and record.step == "plan"
                and record.keep
                and record.digest == digest
            ):
                return record
        return None

    def sweep(self, claims: Collection[int] = ()) -> list[Record]:
        """Forget the oldest reported runs, except those of `claims`. Returns the runs with folders
        to remove.
        """
        over = [
            record
            for record in self.list_records()
            if record.phase == REPORTED and record.claim not in claims
        ]
        reported = sorted(over, key=lambda record: -record.generation)
        kept = [record for record in reported if record.keep]
        gone = kept[MOST_KEPT:]
        for record in gone:
            record.keep = False
            with contextlib.suppress(OSError):  # the next start of the agent tries again
                self.save(record)
        for record in [record for record in reported if not record.keep][MOST_REPORTED:]:
            with contextlib.suppress(OSError):
                self.forget(record)
        return gone


def open_private(path: Path) -> IO[bytes]:
    """An empty file for this user alone, never opened through a link."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC
    return open(os.open(path, flags, 0o600), "wb")


def write_whole(path: Path, data: bytes) -> None:
    """Replace a file. After a crash of the machine, the file has the old or the new content."""
    fresh = path.with_name(f".{path.name}.new")
    with open_private(fresh) as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    fresh.replace(path)
    folder = os.open(path.parent, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
