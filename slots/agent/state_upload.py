"""States that this agent has rescued and the server lacks: listed for its hello, uploaded, and
removed once the server has them.

The folder is the list: `rescued/<claim>-<generation>.tfstate`. A file whose name ends otherwise is
still being written.
"""

from __future__ import annotations

import re
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Tuple

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
    """For the hello of an agent."""
    found = []
    for (claim, generation), path in list_rescued(state).items():
        try:
            found.append({"claim": claim, "generation": generation, "size": path.stat().st_size})
        except OSError:
            continue  # uploaded and removed meanwhile
    return found


def send_state(client: BerthClient, key: Key, file: Path) -> bool:
    """Uploads one and removes it here. False: a person has given it up, and the server does
    not keep it.
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
        raise ServerUnavailable("the server does not confirm that it has the state")
    file.unlink()
    return is_kept is not False


class StateSender:
    """Uploads what no run uploads with its result: what an earlier start of the agent left, and
    what the server refused before.
    """

    def __init__(self, context: Context) -> None:
        self.context = context
        self.due: dict[Key, float] = {}
        self.failures: dict[Key, int] = {}
        self.thread: Any = None

    @property
    def is_sending(self) -> bool:
        return self.thread is not None and self.thread.is_alive()

    def list_left(self, but: set[Key]) -> dict[Key, Path]:
        """`but`: runs that upload their own."""
        return {
            key: path
            for key, path in list_rescued(self.context.state.folder).items()
            if key not in but
        }

    def start(self, but: set[Key]) -> None:
        now = time.monotonic()
        left = {
            key: path for key, path in self.list_left(but).items() if self.due.get(key, 0.0) <= now
        }
        if left and not self.is_sending:
            self.thread = threading.Thread(
                target=self._send_all, args=(left,), name="rescued states", daemon=True
            )
            self.thread.start()

    def _send_all(self, left: dict[Key, Path]) -> None:
        journal = self.context.journal
        try:
            for key, path in left.items():
                if self.context.quit_now.is_set():
                    return
                name = f"{key[0]}-{key[1]}"
                try:
                    is_kept = send_state(self.context.client, key, path)
                    journal.note(
                        "rescued state sent" if is_kept else "rescued state given up by a person",
                        run=name,
                    )
                except (ServerUnavailable, TokenRejected, RequestRefused, OSError) as error:
                    self.failures[key] = self.failures.get(key, 0) + 1
                    pause = min(AGAIN_AT_MOST, AGAIN * 2 ** min(self.failures[key] - 1, 10))
                    self.due[key] = time.monotonic() + pause
                    journal.error(
                        "rescued state not sent", run=name, error=error, again_s=pause, file=path
                    )
        finally:
            self.context.client.close()
            self.context.wake()
