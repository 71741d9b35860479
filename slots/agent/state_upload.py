"""Uploads rescued Terraform states, lists them for hello, and removes them once the server has
them.

Each state is a file `rescued/<claim>-<generation>.tfstate`. Other file names are incomplete copies.
"""

from __future__ import annotations

import re
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Tuple

from .common.errors import RequestRefused, ServerUnavailable, TokenRejected
from .server.client import BerthClient
from .workdir.folders import digest_file, rescued_folder

if TYPE_CHECKING:
    from .runner import Context

NAME = re.compile(r"(\d{1,19})-(\d{1,19})\.tfstate\Z")
AGAIN, AGAIN_AT_MOST = 10.0, 600.0  # seconds between two tries to upload one

Key = Tuple[int, int]


def list_rescued(state: Path) -> dict[Key, Path]:
    try:
        found = sorted(rescued_folder(state).iterdir())
    except OSError:
        return {}
    named = [(NAME.match(path.name), path) for path in found]
    return {
        (int(match.group(1)), int(match.group(2))): path
        for match, path in named
        if match and path.is_file()
    }


def describe_rescued(state: Path) -> list[dict[str, int]]:
    """The rescued states as the hello of the agent reports them."""
    found = []
    for (claim, generation), path in list_rescued(state).items():
        try:
            found.append({"claim": claim, "generation": generation, "size": path.stat().st_size})
        except OSError:
            continue  # uploaded and removed meanwhile
    return found


def send_state(client: BerthClient, key: Key, file: Path) -> bool:
    """Upload a state and remove the file. False: the server did not keep it, because an operator
    has discarded it.
    """
    claim, generation = key
    digest = digest_file(file)
    try:
        path = f"tasks/{claim}/{generation}/state/"
        answer = client.put(path, file, "application/octet-stream", {"Berth-Digest": digest})
    except RequestRefused as error:
        if error.code == "digest_differs":
            raise ServerUnavailable("the state did not arrive whole") from error
        raise
    is_kept = answer.get("is_kept")
    if is_kept is not False and answer.get("digest") != digest:
        raise ServerUnavailable("the server does not confirm the state")
    file.unlink()
    return is_kept is not False


class StateSender:
    """Uploads states that no run uploads with its result: those of an earlier start of the agent,
    and those that the server refused before.
    """

    def __init__(self, context: Context) -> None:
        self.context = context
        self.due: dict[Key, float] = {}
        self.failures: dict[Key, int] = {}
        self.thread: threading.Thread | None = None

    @property
    def is_sending(self) -> bool:
        return self.thread is not None and self.thread.is_alive()

    def list_left(self, running: set[Key]) -> dict[Key, Path]:
        """Rescued states without those of `running`, which these runs upload."""
        rescued = list_rescued(self.context.state.folder).items()
        return {key: path for key, path in rescued if key not in running}

    def start(self, running: set[Key]) -> None:
        now = time.monotonic()
        left = self.list_left(running).items()
        due = {key: path for key, path in left if self.due.get(key, 0.0) <= now}
        if due and not self.is_sending:
            self.thread = threading.Thread(
                target=self._send_all, args=(due,), name="rescued states", daemon=True
            )
            self.thread.start()

    def _send_all(self, left: dict[Key, Path]) -> None:
        log = self.context.log
        try:
            for key, path in left.items():
                if self.context.quit_now.is_set():
                    return
                name = f"{key[0]}-{key[1]}"
                try:
                    is_kept = send_state(self.context.client, key, path)
                    log.info(
                        "rescued state sent" if is_kept else "rescued state discarded by order",
                        run=name,
                    )
                except (ServerUnavailable, TokenRejected, RequestRefused, OSError) as error:
                    self.failures[key] = self.failures.get(key, 0) + 1
                    pause = min(AGAIN_AT_MOST, AGAIN * 2 ** min(self.failures[key] - 1, 10))
                    self.due[key] = time.monotonic() + pause
                    log.error(
                        "rescued state not sent", run=name, error=error, again_s=pause, file=path
                    )
        finally:
            self.context.client.close()
            self.context.wake()
