"""The real web process on a port of its own."""

import os
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


@contextmanager
def run_web(
    environment: Mapping[str, str],
    *,
    port: int = 0,
    preexec_fn: Callable[[], None] | None = None,
) -> Iterator[tuple[str, "subprocess.Popen[bytes]"]]:
    """Yields address and process of a web process, once it serves."""
    ready, told = os.pipe()
    with socket.socket() as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(("127.0.0.1", port))
        # At the end at once: it need not wait.
        handles = (listener.fileno(), os.open(os.devnull, os.O_RDONLY), told)
        command = [sys.executable, "-m", "project.kernel.embedded.web", *map(str, handles)]
        process = subprocess.Popen(
            command, cwd=ROOT, env=dict(environment), pass_fds=handles, preexec_fn=preexec_fn
        )
        os.close(handles[1])
        os.close(told)
        try:
            # Ends when it says so, and when it dies.
            assert os.read(ready, 1), "the web process does not start"
            address = f"http://127.0.0.1:{listener.getsockname()[1]}"
            listener.close()  # else connections to a dead process would wait
            yield address, process
        finally:
            os.close(ready)
            process.terminate()
            process.wait(20)
