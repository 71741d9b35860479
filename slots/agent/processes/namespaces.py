"""Tests whether tasks can have their own namespaces on this machine.

`python -m slots.agent.processes.namespaces FOLDER` prints the reason if they cannot.
"""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path
from typing import NoReturn

from .isolation import IS_KNOWN, View, enter


def find_obstacle(temporary: str) -> str:
    """Why a task cannot have its own namespaces here; empty: it can. A child process tries it with
    a hidden folder.
    """
    if not IS_KNOWN:
        return "this Python or system has no namespaces"
    reader, writer = os.pipe()
    try:
        child = os.fork()
    except OSError as error:
        return f"the test cannot start a process: {error.strerror}"
    if not child:
        probe_namespaces(Path(temporary), writer)
    os.close(writer)
    with os.fdopen(reader, "rb") as stream:
        reason = stream.read().decode("utf-8", "replace")
    _, status = os.waitpid(child, 0)
    return reason or ("" if status == 0 else f"the test process ended with status {status}")


def probe_namespaces(temporary: Path, writer: int) -> NoReturn:
    try:
        secret = temporary / "secret"
        secret.mkdir()
        (secret / "file").write_text("secret")
        own = temporary / "own"
        own.mkdir()
        enter(View((str(secret),), (), (), str(own)), "/")
        others = [
            entry
            for entry in Path("/proc").iterdir()
            if entry.name.isdigit() and int(entry.name) not in (1, os.getpid())
        ]
        if (secret / "file").exists() or others:
            os.write(writer, b"hidden files or processes are visible")
    except BaseException as error:
        os.write(writer, (str(error) or repr(error)).encode())
        os._exit(1)
    os._exit(0)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory(dir=sys.argv[1]) as scratch:
        sys.stdout.write(find_obstacle(scratch))
