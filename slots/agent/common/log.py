"""The agent's own log: lines of key=value on stderr. Values are cut and quoted."""

from __future__ import annotations

import contextlib
import json
import os
import threading
import time
import traceback
from typing import Callable

MAX_VALUE_LENGTH = 500


class AgentLog:
    def __init__(self, handle: int = 2) -> None:
        self.handle = handle
        self.lock = threading.Lock()

    def info(self, what: str, **facts: object) -> None:
        self._write("info", what, facts)

    def error(self, what: str, **facts: object) -> None:
        self._write("error", what, facts)

    def trace(self, what: str, error: BaseException, **facts: object) -> None:
        where = traceback.extract_tb(error.__traceback__)[-1:]
        at = f"{where[0].filename.rpartition('/')[2]}:{where[0].lineno}" if where else ""
        self._write("error", what, {**facts, "error": f"{type(error).__name__}: {error}", "at": at})

    def bind(self, run: str) -> Callable[[str], None]:
        return lambda text: self.info(text, run=run)

    def _write(self, level: str, what: str, facts: dict[str, object]) -> None:
        stamp = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        pairs = "".join(
            f" {key}={quote(value)}" for key, value in facts.items() if value not in ("", None)
        )
        line = f"{stamp} {level} {what}{pairs}\n".encode("utf-8", "replace")
        # Python's own buffers are avoided: at exit, a thread that waits for their lock would abort
        # the process.
        with self.lock, contextlib.suppress(OSError):  # stderr may be closed; the work goes on
            os.write(self.handle, line)


def quote(value: object) -> str:
    text = str(value)[:MAX_VALUE_LENGTH]
    return (
        text
        if text and all(character.isalnum() or character in "-_.:/+@%," for character in text)
        else json.dumps(text)
    )
