"""A real `make up` with a pool on this machine, and its interface."""

import http.client
import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pools.providers.local import agent_folder
from project.kernel.embedded.process import free_port
from tests.end_to_end.stack import Stack


@contextmanager
def up_with(pool: str, home: Path, **environment: str) -> Iterator[Stack]:
    """It is up and has this pool; in the end it is down. What outlives it is left to the caller."""
    home.chmod(0o700)
    (home / "pools.yaml").write_text(pool)
    environment = {"BERTH_SPARE": "0", **environment}
    stack = Stack(home / "state", free_port(), **environment).start(120)
    done = stack.manage("apply", "-f", str(home / "pools.yaml"))
    assert done.returncode == 0, done.stderr
    yield stack
    assert stack.process is not None
    if stack.process.poll() is None:
        stack.stop()


def folders(stack: Stack) -> list[Path]:
    """Folders of the stack's agents on this machine."""
    return sorted((stack.home / agent_folder.FOLDER).glob("*"))


def ask(stack: Stack, token: str, method: str, path: str, body: Any = None) -> tuple[int, Any]:
    connection = http.client.HTTPConnection("127.0.0.1", stack.port, timeout=60)
    headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
    connection.request(
        method, f"/api/v1/{path}", None if body is None else json.dumps(body), headers
    )
    answer = connection.getresponse()
    text = answer.read()
    connection.close()
    return answer.status, json.loads(text) if "json" in (
        answer.getheader("Content-Type") or ""
    ) else text.decode()


def call(stack: Stack, token: str, method: str, path: str, body: Any = None) -> Any:
    status, told = ask(stack, token, method, path, body)
    assert status < 300, (status, told)
    return told
