"""The state folder: what this agent took on, written before it does it. One file per generation,
whole or not at all.

accepted -> launching -> running -> finished -> reported. Who finds `launching` or `running` after a
restart knows that it may have run.
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
from typing import Any, Collection

from .errors import Unusable

ACCEPTED, LAUNCHING, RUNNING, FINISHED, REPORTED = (
    "accepted",
    "launching",
    "running",
    "finished",
    "reported",
)
LOST, NOT_STARTED = "lost", "not_started"
MOST_REPORTED = 1000  # generations known to be over; the server does not come back to older ones
MOST_KEPT = 50


@dataclass
class Record:
    claim: int
    generation: int
    step: str
    slot: int
    place: str = ""
    task: str = ""
    phase: str = ACCEPTED
    stage: str = ""  # what of it ran last
    pid: int = 0
    pid_start: str = ""
    status: str = ""  # after a restart: lost, not_started
    result: dict[str, Any] | None = None
    digest: str = ""  # of the plan it made
    has_plan: bool = False  # files still to be sent, or kept for the apply
    has_json: bool = False
    keep: bool = False  # its folder is needed for the apply
    log_next: int = 0
    extra: dict[str, Any] = field(default_factory=dict)

    @property
    def name(self) -> str:
        return f"{self.claim}-{self.generation}"

    @property
    def path(self) -> str:
        return f"tasks/{self.claim}/{self.generation}/"

    @property
    def fate(self) -> str:
        """What became of it if this agent knows no more than this. Of an apply, what came before
        its own program changed nothing.
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
        self.spools = folder / "spool"
        try:
            for path in (folder, self.runs, self.spools):
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
                f"Another agent{f' (process {other})' if other else ''} works with the state "
                f"folder {self.folder}. Stop it, or give this one a folder of its own in --state.",
                4,
            ) from error
        os.ftruncate(self.handle, 0)
        os.pwrite(self.handle, str(os.getpid()).encode(), 0)

    def identify(self) -> str:
        """A lasting name of this folder, by which processes of its tasks are found."""
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
        """All that is known from before. Returns the names of files that cannot be read: those
        are taken as having run.
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
                if (record.claim, record.generation) != (int(claim), int(generation)):
                    raise ValueError("another generation's")
            except (OSError, ValueError, TypeError, AttributeError):
                broken.append(path.name)
                record = Record(int(claim), int(generation), "", 0, phase=RUNNING)
            self.records[record.claim, record.generation] = record
        return broken

    def get(self, claim: int, generation: int) -> Record | None:
        return self.records.get((claim, generation))

    def save(self, record: Record) -> None:
        with self.guard:
            write_whole(self.runs / f"{record.name}.json", json.dumps(asdict(record)).encode())
            self.records[record.claim, record.generation] = record

    def list_records(self) -> list[Record]:
        with self.guard:
            return list(self.records.values())

    def forget(self, record: Record) -> None:
        with self.guard:
            self.records.pop((record.claim, record.generation), None)
            (self.runs / f"{record.name}.json").unlink(missing_ok=True)

    def kept(self, claim: int, digest: str) -> Record | None:
        """The plan of this claim whose folder is still here."""
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
        """Forgets the oldest that are over, but of none of these claims. Returns those whose
        folders go, too.
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
            with contextlib.suppress(OSError):  # said again by the next start
                self.save(record)
        for record in [record for record in reported if not record.keep][MOST_REPORTED:]:
            with contextlib.suppress(OSError):
                self.forget(record)
        return gone


def write_whole(path: Path, data: bytes) -> None:
    """Also after the machine died, the file is the old one or the new one."""
    fresh = path.with_name(f".{path.name}.new")
    with open(
        os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600), "wb"
    ) as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    fresh.replace(path)
    folder = os.open(path.parent, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
