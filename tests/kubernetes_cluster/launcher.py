"""A real API server (etcd and kube-apiserver, built by `make kube`) as a process that ends with
its parent.

python -m tests.kubernetes_cluster.launcher FOLDER [--user NAME[=GROUP,...] ...]     one line of JSON when it is ready; then it does what it is told by
lines on its standard input: {"do": "kill"}, {"do": "start"}, {"do": "compact"}, {"do": "expire"};
and ends with that input.
"""  # noqa: E501

import argparse
import ctypes
import http.client
import json
import os
import secrets
import shutil
import signal
import socket
import ssl
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

PRCTL = ctypes.CDLL(None, use_errno=True).prctl
ETCD, SERVER = "etcd", "kube-apiserver"
# These wait for controllers that don't run: a service account in each namespace, the removal of the
# volumes' finalizers.
NEEDS_CONTROLLERS = "ServiceAccount,StorageObjectInUseProtection"
PATIENCE = 180.0


class Servers:
    def __init__(self, programs: Path, users: dict[str, list[str]]) -> None:
        self.programs = programs
        self.folder = Path(tempfile.mkdtemp(prefix="berth-kube-"))
        self.groups = {"admin": ["system:masters"], **users}
        self.tokens = {name: secrets.token_hex(16) for name in self.groups}
        # Held, never listened on: the port is ours alone, also while the server is
        # down (--permit-port-sharing).
        self.held = socket.socket()
        self.held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        self.held.bind(("127.0.0.1", 0))
        self.port = self.held.getsockname()[1]
        self.url = f"https://127.0.0.1:{self.port}"
        self.running: dict[str, subprocess.Popen[bytes]] = {}

    @property
    def ca(self) -> str:
        return str(self.folder / "certs" / "apiserver.crt")

    def command(self, name: str) -> list[str]:
        if name == ETCD:  # sockets in the folder: no ports, no other etcd
            listen = [
                "--listen-client-urls=unix://client.sock",
                "--listen-peer-urls=unix://peer.sock",
            ]
            return [
                "--data-dir=etcd",
                "--unsafe-no-fsync",
                "--logger=zap",
                "--log-level=warn",
                "--advertise-client-urls=http://localhost:0",
                *listen,
            ]
        return [
            "--etcd-servers=unix://client.sock", "--bind-address=127.0.0.1",
            f"--secure-port={self.port}", "--permit-port-sharing", "--cert-dir=certs",
            "--authorization-mode=RBAC", "--anonymous-auth=false", "--token-auth-file=tokens.csv",
            f"--disable-admission-plugins={NEEDS_CONTROLLERS}",
            "--service-account-issuer=https://kubernetes.default.svc",
            "--service-account-signing-key-file=certs/apiserver.key",
            "--service-account-key-file=certs/apiserver.key",
            "--service-cluster-ip-range=10.96.0.0/16", "--endpoint-reconciler-type=none",
        ]  # fmt: skip

    def spawn(self, name: str) -> None:
        parent = os.getpid()

        def end_with_us() -> None:
            PRCTL(1, signal.SIGKILL)  # PR_SET_PDEATHSIG
            if os.getppid() != parent:
                os._exit(1)  # we ended before the line above

        with (self.folder / f"{name}.log").open("ab") as log:
            self.running[name] = subprocess.Popen(
                [self.programs / name, *self.command(name)],
                cwd=self.folder,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                preexec_fn=end_with_us,
            )

    def start(self) -> None:
        rows = [
            f'{token},{name},{name},"{",".join(self.groups[name])}"'
            for name, token in self.tokens.items()
        ]
        (self.folder / "tokens.csv").write_text("\n".join(rows) + "\n")
        self.start_etcd()
        self.start_server()

    def start_etcd(self) -> None:
        self.spawn(ETCD)
        self.wait(ETCD, lambda: self.etcd("/health", method="GET")["health"] == "true")

    def start_server(self) -> None:
        self.spawn(SERVER)
        self.wait(SERVER, lambda: self.get("/readyz") and self.get("/api/v1/namespaces/default"))

    def wait(self, name: str, probe: Callable[[], Any]) -> None:
        end = time.monotonic() + PATIENCE
        while True:
            if (code := self.running[name].poll()) is None:
                try:
                    if probe():
                        return
                except (OSError, http.client.HTTPException, ValueError):  # not yet
                    pass
            if code is not None or time.monotonic() > end:
                tail = (self.folder / f"{name}.log").read_text(errors="replace")[-3000:]
                raise RuntimeError(f"{name} is not ready (exit code {code}):\n{tail}")
            time.sleep(0.05)  # no notification exists

    def get(self, path: str) -> str:
        request = urllib.request.Request(
            self.url + path, headers={"Authorization": f"Bearer {self.tokens['admin']}"}
        )
        secure = urllib.request.HTTPSHandler(context=ssl.create_default_context(cafile=self.ca))
        with urllib.request.build_opener(urllib.request.ProxyHandler({}), secure).open(
            request, timeout=5
        ) as answer:
            return str(answer.read().decode())

    def etcd(self, path: str, body: Any = None, method: str = "POST") -> Any:
        connection = http.client.HTTPConnection("localhost", timeout=5)
        connection.sock = socket.socket(socket.AF_UNIX)
        try:
            connection.sock.connect(str(self.folder / "client.sock"))
            connection.request(method, path, json.dumps(body or {}))
            return json.loads(connection.getresponse().read())
        finally:
            connection.close()

    def kill(self, name: str) -> None:
        """SIGKILL: harmless to etcd's data, and SIGTERM takes the API server a minute while a
        watch is open.
        """
        if (process := self.running.pop(name, None)) is not None:
            process.kill()
            process.wait()

    def do(self, what: str) -> None:
        if what in ("kill", "expire"):
            self.kill(SERVER)
        # Compaction alone: the server's caches still have the past.
        if what in ("compact", "expire"):
            revision = self.etcd("/v3/kv/range", {"key": "AA=="})["header"]["revision"]
            self.etcd("/v3/kv/compaction", {"revision": revision, "physical": True})
        if what in ("start", "expire"):
            self.start_server()

    def stop(self) -> None:
        for name in (SERVER, ETCD):
            self.kill(name)
        self.held.close()
        shutil.rmtree(self.folder, ignore_errors=True)


def say(words: Any) -> None:
    sys.stdout.write(json.dumps(words) + "\n")
    sys.stdout.flush()


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("programs", type=Path)
    parser.add_argument("--user", action="append", default=[])
    given = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the tests, which end our input
    users = {
        name: [group for group in groups.split(",") if group]
        for name, _, groups in (user.partition("=") for user in given.user)
    }
    servers = Servers(given.programs.resolve(), users)
    try:
        servers.start()
        pids = {name: process.pid for name, process in servers.running.items()}
        say(
            {
                "url": servers.url,
                "ca": servers.ca,
                "tokens": servers.tokens,
                "folder": str(servers.folder),
                "pids": pids,
            }
        )
        for line in sys.stdin:
            try:
                servers.do(json.loads(line)["do"])
            except (OSError, RuntimeError, http.client.HTTPException) as error:
                say({"error": str(error)})
            else:
                say({"done": True})
    finally:
        servers.stop()
    return 0


if __name__ == "__main__":
    sys.exit(main())
