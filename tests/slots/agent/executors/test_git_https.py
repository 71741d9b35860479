"""A git source over https end to end: real git, git http-backend behind TLS with its own CA, a
password as a secret.
"""

import base64
import os
import ssl
import subprocess
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from tests.slots.agent.conftest import Agent
from tests.slots.agent.fake_berth import Server
from tests.slots.agent.fake_websocket import make_certificate

from .git_history import make_history

PASSWORD = "hunter2-over-https"


class Backend(BaseHTTPRequestHandler):
    """git http-backend as CGI, behind a password."""

    protocol_version = "HTTP/1.1"
    server: "GitServer"  # type: ignore[assignment]

    def log_message(self, *args: Any) -> None:
        pass

    def serve(self) -> None:
        size = int(self.headers.get("Content-Length") or 0)
        body = self.rfile.read(size)
        self.server.asked.append(self.path)
        if (
            self.headers.get("Authorization")
            != "Basic " + base64.b64encode(f"git:{PASSWORD}".encode()).decode()
        ):
            self.answer(401, {"WWW-Authenticate": 'Basic realm="git"'}, b"")
            return
        path, _, query = self.path.partition("?")
        about = {
            "GIT_PROJECT_ROOT": str(self.server.root), "GIT_HTTP_EXPORT_ALL": "1",
            "REQUEST_METHOD": self.command, "PATH_INFO": path, "QUERY_STRING": query,
            "CONTENT_TYPE": self.headers.get("Content-Type", ""), "CONTENT_LENGTH": str(size),
            "HTTP_CONTENT_ENCODING": self.headers.get("Content-Encoding", ""),
            "GIT_PROTOCOL": self.headers.get("Git-Protocol", ""), "REMOTE_ADDR": "127.0.0.1",
            "GIT_CONFIG_GLOBAL": str(self.server.config),
        }  # fmt: skip
        made = subprocess.run(
            ["git", "http-backend"],
            input=body,
            env={**os.environ, **about},
            capture_output=True,
            check=True,
        ).stdout
        head, _, text = made.partition(b"\r\n\r\n")
        headers = dict(line.split(": ", 1) for line in head.decode().split("\r\n"))
        self.answer(int(headers.pop("Status", "200").split()[0]), headers, text)

    do_GET = do_POST = serve  # noqa: N815  (http.server's names)

    def answer(self, status: int, headers: dict[str, str], body: bytes) -> None:
        self.send_response(status)
        for name, value in {**headers, "Content-Length": str(len(body))}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)


class GitServer(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, root: Path) -> None:
        super().__init__(("127.0.0.1", 0), Backend)
        self.root, self.asked = root, list[str]()
        self.config = root / "gitconfig"
        self.config.write_text(
            "[safe]\n\tdirectory = *\n[uploadpack]\n\tallowAnySHA1InWant = true\n"
        )
        self.certificate, key = make_certificate(root)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(self.certificate, key)
        self.socket = context.wrap_socket(self.socket, server_side=True)
        self.thread = threading.Thread(
            target=self.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True
        )
        self.thread.start()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Clients that do not trust the certificate break the handshake."""

    @property
    def url(self) -> str:
        return f"https://127.0.0.1:{self.server_address[1]}/net.git"


@pytest.fixture
def origin(tmp_path: Path) -> Iterator[GitServer]:
    root = tmp_path / "served"
    work = root / "net.git"
    work.mkdir(parents=True)
    found = GitServer(root)
    make_history(work, tmp_path)
    yield found
    found.shutdown()
    found.server_close()


def work(
    origin: GitServer, ref: str = "main", *, is_trusted: bool = True, password: str = PASSWORD
) -> dict[str, Any]:
    return {
        "commands": {"plan": "cat a.txt"},
        "source": {"kind": "git", "url": origin.url, "ref": ref, "path": "infra"},
        "git_hosts": [f"127.0.0.1:{urlsplit(origin.url).port}"],
        "env": {"GIT_SSL_CAINFO": str(origin.certificate)} if is_trusted else {},
        "secrets": {"GIT_PASSWORD": password},
    }


def test_branch_and_commit_are_fetched_over_https_with_ca_and_password(
    server: Server, start_agent: Callable[..., Agent], origin: GitServer, tmp_path: Path
) -> None:
    start_agent()
    for claim, ref in enumerate(("main", "first"), 1):
        commit = (tmp_path / ("second" if ref == "main" else "first")).read_text()
        server.order(claim, claim, **work(origin, ref if ref == "main" else commit))
        planned = server.result(claim, claim)
        assert (planned["outcome"], planned["facts"].get("commit")) == ("planned", commit), (
            server.log(claim, claim)
        )
        assert ("second\n" if ref == "main" else "first\n") in server.log(claim, claim)
        assert PASSWORD not in server.log(claim, claim)
    assert not any(PASSWORD in path for path in origin.asked)


@pytest.mark.parametrize(
    ("change", "code", "words"),
    [
        ({"is_trusted": False}, "source_failed", "certificate"),
        ({"password": "another"}, "source_failed", "uthentication failed"),
        ({"ref": "gone"}, "git_ref_gone", "gone"),
        ({"ref": "f" * 40}, "git_ref_gone", "f" * 40),
    ],
    ids=["nobody vouches for it", "wrong password", "no such branch", "no such commit"],
)
def test_unavailable_https_source_fails_the_plan_with_a_reason(
    server: Server,
    start_agent: Callable[..., Agent],
    origin: GitServer,
    change: dict[str, Any],
    code: str,
    words: str,
) -> None:
    start_agent()
    server.order(1, 1, **work(origin, **change))
    result = server.result(1, 1)
    assert (result["outcome"], result["code"]) == ("failed", code), server.log(1, 1)
    assert words in result["reason"]
