"""Clusters for tests: one in memory and a real one behind a gate, with the same handles.

`kubeconfig` has a context for each user: `admin` may do everything, straight to the server;
`gated` may do the same through the gate, where `refuse`, `hang`, `cut` and `mute` work; `limited`
may do what `Space.grant` gave it; `stranger` has an unknown token; `nowhere` names a server that
does not answer.
"""

import http.client
import json
import os
import secrets
import ssl
import subprocess
import sys
import tempfile
import threading
from abc import ABC, abstractmethod
from functools import cached_property
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from project.kernel.embedded.process import free_port
from tests.kubernetes_cluster.fake_rights import MASTERS, User
from tests.kubernetes_cluster.fake_server import FakeServer
from tests.kubernetes_cluster.fault_gate import Gate
from tests.kubernetes_cluster.faults import Fault, Faults
from tests.kubernetes_cluster.http_front import Front

ROOT = Path(__file__).resolve().parents[2]
STRATEGIC = "application/strategic-merge-patch+json"
MERGE = "application/merge-patch+json"
Thing = dict[str, Any]


class Unanswered(Exception):
    """The server is not there, or gave up in the middle."""


class KubeWorld(ABC):
    name: str
    url: str
    ca: str = ""
    tokens: dict[str, str]
    front: Front  # of the gate, or of the fake itself
    faults: Faults

    def __init__(self) -> None:
        self.folder = tempfile.TemporaryDirectory(prefix="berth-kube-world-")
        self.kubeconfig = Path(self.folder.name) / "kubeconfig"
        # Kept for the next read, because a TLS handshake takes longer than a read.
        self.idle: list[http.client.HTTPConnection] = []

    # -- running -----------------------------------------------------------------------------------
    @abstractmethod
    def kill(self) -> None:
        """As kill -9 of the server: every connection ends, and its port is closed until `start`."""

    @abstractmethod
    def start(self) -> None: ...

    @abstractmethod
    def compact(self) -> None:
        """The store forgets the past. The server's own memory still has it, as after a
        compaction of etcd.
        """

    @abstractmethod
    def expire(self) -> None:
        """Every version and every page that was given out so far is answered with 410 from now
        on; all connections end.
        """

    @abstractmethod
    def close(self) -> None: ...

    def write_kubeconfig(self) -> None:
        authority = {"certificate-authority": self.ca} if self.ca else {}
        clusters = {"admin": {"server": self.url, **authority}, "gated": {"server": self.front.url}}
        clusters["nowhere"] = {"server": f"http://127.0.0.1:{free_port()}"}
        users = {
            **self.tokens,
            "gated": self.tokens["admin"],
            "stranger": secrets.token_hex(16),
            "nowhere": "x",
        }
        contexts = [
            {
                "name": name,
                "context": {"cluster": name if name in clusters else "admin", "user": name},
            }
            for name in users
        ]
        content = {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "admin",
            "contexts": contexts,
            "clusters": [{"name": name, "cluster": cluster} for name, cluster in clusters.items()],
            "users": [{"name": name, "user": {"token": token}} for name, token in users.items()],
        }
        half = self.kubeconfig.with_suffix(".half")
        half.write_text(json.dumps(content))
        half.replace(self.kubeconfig)

    # -- faults, for clients of the context `gated` ------------------------------------------------
    def refuse(
        self, verb: str, status: int, times: int = 1, retry_after: int | None = None, **more: Any
    ) -> None:
        """The next so many requests. Verbs as in rights, or *; status 0: the connection ends.
        More: plural, namespace, message, and is_after: the request has its effect, and this is
        the answer."""
        self.faults.order(Fault(verb, status, times, retry_after=retry_after, **more))

    def hang(self, verb: str, times: int = 1, **more: Any) -> None:
        """Requests that are taken and never answered."""
        self.faults.order(Fault(verb, 0, times, is_hanging=True, **more))

    def mute(self, path: str) -> None:
        """Watches of this path fall silent and stay open, and so do new ones, until `heal`."""
        self.front.muted.add(path)

    def cut(self) -> None:
        """Every connection ends, watches too."""
        self.front.cut()

    def heal(self) -> None:
        self.faults.clear()
        if self.front.muted:
            self.front.muted.clear()
            self.front.cut()

    # -- asking ------------------------------------------------------------------------------------
    def ask(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        user: str = "admin",
        content: str = "application/json",
    ) -> tuple[int, Any]:
        headers = {
            "Content-Type": content,
            "Accept": "application/json",
            "Authorization": f"Bearer {self.tokens.get(user, user)}",
        }
        data = None if body is None else json.dumps(body)
        connection = self.idle.pop() if self.idle and method == "GET" else self.connect()
        is_used = connection.sock is not None
        try:
            connection.request(method, path, data, headers)
            answer = connection.getresponse()
            text = answer.read().decode()
        except (OSError, http.client.HTTPException) as error:
            connection.close()
            if is_used:  # the server has closed it, or was restarted
                return self.ask(method, path, body, user=user, content=content)
            raise Unanswered(f"{method} {path}: {error!r}") from error
        if isinstance(connection, http.client.HTTPSConnection):
            self.idle.append(connection)
        else:
            connection.close()
        if answer.status == 200 and "watch=1" in path:
            return 200, [json.loads(line) for line in text.splitlines() if line]
        return answer.status, json.loads(text) if text[:1] == "{" else text

    def connect(self) -> http.client.HTTPConnection:
        at = urlsplit(self.url)
        if at.scheme == "https":
            return http.client.HTTPSConnection("127.0.0.1", at.port, timeout=30, context=self.trust)
        return http.client.HTTPConnection("127.0.0.1", at.port, timeout=30)

    @cached_property
    def trust(self) -> ssl.SSLContext:
        return ssl.create_default_context(cafile=self.ca)

    def hang_up(self) -> None:
        while self.idle:
            self.idle.pop().close()

    def must(self, method: str, path: str, body: Any = None, **more: Any) -> Any:
        status, answer = self.ask(method, path, body, **more)
        assert status < 300, (method, path, status, answer)
        return answer

    def version(self) -> str:
        return str(self.must("GET", "/version")["gitVersion"])


class FakeKube(KubeWorld):
    """A fake in this process with two addresses: for `gated`, and for all other contexts."""

    name = "fake"

    def __init__(self, users: tuple[str, ...] = ("limited", "robot")) -> None:
        super().__init__()
        self.tokens = {name: secrets.token_hex(16) for name in ("admin", *users)}
        groups = {"admin": (MASTERS,)}
        self.server = FakeServer(
            {token: User(name, groups.get(name, ())) for name, token in self.tokens.items()}
        )
        self.past = Front(self.server.answer_past_faults)
        self.front, self.faults, self.url = self.server.front, self.server.faults, self.past.url
        self.start()
        self.write_kubeconfig()

    def kill(self) -> None:
        self.front.kill()
        self.past.kill()

    def start(self) -> None:
        self.front.start()
        self.past.start()

    def compact(self) -> None:
        """Has no visible effect, as on the real server."""

    def expire(self) -> None:
        self.kill()
        with self.server.store.news:
            self.server.store.forget()
        self.start()

    def close(self) -> None:
        self.hang_up()
        self.front.close()
        self.past.close()
        self.folder.cleanup()
        assert self.front.errors + self.past.errors == []


class RealKube(KubeWorld):
    """etcd and kube-apiserver as processes, which end with us."""

    name = "real"

    def __init__(self, programs: Path, users: tuple[str, ...] = ("limited", "robot")) -> None:
        super().__init__()
        command = [
            sys.executable,
            "-m",
            "tests.kubernetes_cluster.launcher",
            str(programs),
            *(part for user in users for part in ("--user", user)),
        ]
        self.process = subprocess.Popen(
            command,
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=os.environ,
        )
        self.lock = threading.Lock()
        self.facts = self.hear()
        self.url, self.ca, self.tokens = self.facts["url"], self.facts["ca"], self.facts["tokens"]
        self.gate = Gate("127.0.0.1", int(self.url.rpartition(":")[2]), self.ca)
        self.front, self.faults = self.gate.front, self.gate.faults
        self.front.start()
        self.write_kubeconfig()

    def hear(self) -> Any:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line, f"the servers did not start: {self.process.wait(30)}"
        return json.loads(line)

    def do(self, what: str) -> None:
        assert self.process.stdin is not None
        with self.lock:
            self.process.stdin.write(json.dumps({"do": what}) + "\n")
            self.process.stdin.flush()
            answer = self.hear()
        assert answer == {"done": True}, answer

    def kill(self) -> None:
        self.do("kill")
        self.front.cut()

    def start(self) -> None:
        self.do("start")

    def compact(self) -> None:
        self.do("compact")

    def expire(self) -> None:
        self.do("expire")
        self.front.cut()

    def close(self) -> None:
        self.hang_up()
        self.front.close()
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.close()
        self.process.wait(30)
        self.process.stdout.close()
        self.folder.cleanup()
        assert self.front.errors == []
