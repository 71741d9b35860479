"""Fetches the source of a task into its folder and identifies it by a digest."""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass
from pathlib import Path

from ..common.errors import (
    AnswerTooLarge,
    RequestRefused,
    ServerUnavailable,
    TaskFailed,
    TokenRejected,
)
from ..server.client import BerthClient
from ..server.protocol import DIGEST
from ..workdir.archive import unpack
from .git import check_path, fetch_git
from .job import Job

PAUSES = (1.0, 2.0, 5.0, 10.0, 20.0)


@dataclass(frozen=True)
class SourceOrigin:
    digest: str  # of the archive, or of commit and path
    commit: str = ""
    inside: str = ""  # the folder in the source where the task works

    @property
    def facts(self) -> dict[str, str]:
        return {"source_digest": self.digest, **({"commit": self.commit} if self.commit else {})}


def fetch_source(job: Job, client: BerthClient, commit: str = "") -> SourceOrigin:
    """Fetch the source of the task; for an apply, the `commit` of its plan."""
    source = job.work.source
    inside = check_path(source.path)
    job.folder.make()
    if source.kind == "archive":
        digest = fetch_archive(job, client)
        job.folder.chown(job.user)
        origin = SourceOrigin(digest, "", inside)
    elif source.kind == "git":
        job.folder.chown(job.user)
        found = fetch_git(job, source.url, commit or source.ref, job.work.git_hosts)
        origin = SourceOrigin(
            hashlib.sha256(f"git {found} {inside}".encode()).hexdigest(), found, inside
        )
    else:
        job.folder.chown(job.user)
        origin = SourceOrigin(hashlib.sha256(b"").hexdigest(), "", inside)
    enter_folder(job, inside)
    return origin


def enter_folder(job: Job, inside: str) -> None:
    job.cwd = job.folder.source / inside if inside else job.folder.source
    real = os.path.realpath(job.cwd)
    top = os.path.realpath(job.folder.source)
    if not Path(real).is_dir():
        raise TaskFailed("source_failed", f"The source has no folder {inside!r}.")
    if real != top and not real.startswith(top + os.sep):
        raise TaskFailed("source_refused", f"The folder {inside!r} of the source leads out of it.")


def fetch_archive(job: Job, client: BerthClient) -> str:
    source, work = job.work.source, job.work
    if not DIGEST.match(source.digest):
        raise TaskFailed("source_refused", "The server gave no digest of the archive.")
    packed = job.folder.top / "source.tar.gz"
    found = download(job, client, f"{job.record.path}source/", packed, work.limits.source_bytes)
    if found != source.digest:
        raise TaskFailed(
            "source_refused",
            f"The digest of the archive is {found[:12]}… instead of {source.digest[:12]}….",
        )
    try:
        unpack(packed, job.folder.source)
    except OSError as error:
        raise TaskFailed(
            "disk_full" if error.errno in (28, 122) else "source_failed",
            f"The archive cannot be unpacked: {error.strerror}.",
        ) from error
    finally:
        packed.unlink()
    return found


def download(job: Job, client: BerthClient, path: str, file: Path, most: int) -> str:
    """Download a file from the server; returns its digest. Retries while the server is away, until
    the timeout of the task.
    """
    pauses = list(PAUSES)
    while True:
        job.check_time()
        try:
            return client.download(path, file, most)
        except RequestRefused as error:
            raise TaskFailed("source_failed", f"The server refuses the file: {error}") from error
        except AnswerTooLarge as error:
            raise TaskFailed("source_refused", f"The file is over the limit: {error}") from error
        except (ServerUnavailable, TokenRejected) as error:
            job.stop.event.wait(pauses[0] if len(pauses) == 1 else pauses.pop(0))
            job.stop.check()
            job.log_line(f"Berth: the download failed and is repeated: {error}")
