"""`manage.py web`, the command of the containers, applies the same limits as `make up`."""

import os
import socket
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import yaml

from project.kernel.security.client_address import read_networks
from tests.kernel.http.conftest import Connect
from tests.kernel.http.raw_socket import PATIENCE, Raw, head, status_of

ROOT = Path(__file__).resolve().parents[3]
DEPLOY = ROOT / "deploy"


def test_web_command_serves_with_head_limits(connect: Connect) -> None:
    port = find_port()
    command = [sys.executable, "manage.py", "web", "--port", str(port)]
    process = subprocess.Popen(command, cwd=ROOT, env={**os.environ, "BERTH_HEAD_SECONDS": "1"})
    try:
        raw = connect_patiently(connect, f"http://127.0.0.1:{port}")
        assert status_of(raw.send(b"GET /healthz HTTP/1.1\r\nHost: loc").read_to_end()) == 408
        long = (
            connect(f"http://127.0.0.1:{port}")
            .send(head("GET", "/healthz", "X: " + "x" * 70_000))
            .read_to_end()
        )
        assert status_of(long) == 431
    finally:
        process.terminate()
        process.wait(PATIENCE)


def find_port() -> int:
    """Below the ports that connections come from: a client that tries a free one of those may
    meet itself.
    """
    for port in range(20_000, 32_000):
        with socket.socket() as free, suppress(OSError):
            free.bind(("127.0.0.1", port))
            return port
    raise AssertionError("no free port")


def connect_patiently(connect: Connect, url: str) -> Raw:
    end = time.monotonic() + PATIENCE
    while True:
        try:
            return connect(url)
        except ConnectionRefusedError:
            assert time.monotonic() < end, "the web process does not start"


def test_containers_run_the_web_command_and_name_trusted_proxies() -> None:
    assert 'CMD ["python", "manage.py", "web", ' in (DEPLOY / "Dockerfile").read_text()
    compose = yaml.safe_load((DEPLOY / "compose.yaml").read_text())
    default = (
        compose["services"]["web"]["environment"]["BERTH_TRUSTED_PROXIES"]
        .removeprefix("${BERTH_TRUSTED_PROXIES:-")
        .rstrip("}")
    )
    config = yaml.safe_load((DEPLOY / "kustomize/kustomization.yaml").read_text())[
        "configMapGenerator"
    ][0]["literals"]
    told = dict(line.split("=", 1) for line in config)["BERTH_TRUSTED_PROXIES"]
    assert read_networks([default]) and read_networks([told])
