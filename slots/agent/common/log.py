"""The agent's own log: one line each on stderr, key=value. Never a secret: what servers and
tasks say is cut and quoted.
"""

from __future__ import annotations

import contextlib
import json
import os
import threading
import time
import traceback
from typing import Any, Callable

LONGEST = 500


class Journal:
    def __init__(self, handle: int = 2) -> None:
        self.handle = handle
        self.lock = threading.Lock()

    def note(self, what: str, **facts: Any) -> None:
        self._write("info", what, facts)

    def error(self, what: str, **facts: Any) -> None:
        self._write("error", what, facts)

    def trace(self, what: str, error: BaseException, **facts: Any) -> None:
        where = traceback.extract_tb(error.__traceback__)[-1:]
        at = f"{where[0].filename.rpartition('/')[2]}:{where[0].lineno}" if where else ""
        self._write("error", what, {**facts, "error": f"{type(error).__name__}: {error}", "at": at})

    def saying(self, run: str) -> Callable[[str], None]:
        return lambda text: self.note(text, run=run)

    def _write(self, level: str, what: str, facts: dict[str, Any]) -> None:
        stamp = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        pairs = "".join(
            f" {key}={quote(value)}" for key, value in facts.items() if value not in ("", None)
        )
        line = f"{stamp} {level} {what}{pairs}\n".encode("utf-8", "replace")
        # Past Python's own buffers: at the very end a thread that waits for their lock would bring
        # the process down.
        with self.lock, contextlib.suppress(OSError):  # whoever listened is gone; the work goes on
            os.write(self.handle, line)


def quote(value: Any) -> str:
    text = str(value)[:LONGEST]
    return (
        text
        if text and all(character.isalnum() or character in "-_.:/+@%," for character in text)
        else json.dumps(text)
    )
