"""Measures a forwarder on this machine, beside direct connections; no test.

.venv/bin/python -m tests.pools.providers.forwarder.measure
"""

import json
import os
import socket
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

from pools.providers.forwarder.process.plan import (
    ForwardOptions,
    ForwardPlan,
    ForwardTarget,
    ListenerPlan,
    write_plan,
)

LOCALHOST = "127.0.0.1"
SIZE = 500_000_000  # bytes
CONNECTIONS = 1000
DATAGRAMS = 5000
TICKS = os.sysconf("SC_CLK_TCK")


def main() -> None:
    sink = socket.create_server((LOCALHOST, 0))
    threading.Thread(target=swallow, args=(sink,), daemon=True).start()
    echo = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    echo.bind((LOCALHOST, 0))
    with socket.create_server((LOCALHOST, 0)) as probe:
        port = int(probe.getsockname()[1])
    with tempfile.TemporaryDirectory() as home:
        command = [sys.executable, "-m", "pools.providers.forwarder.process", "--state", home]
        process = subprocess.Popen([*command, "--incarnation", "1"], stdout=subprocess.DEVNULL)
        try:
            plan = ForwardPlan(
                1,
                (LOCALHOST,),
                ForwardOptions(health=None),
                (
                    ListenerPlan("tcp", port, target=ForwardTarget(*sink.getsockname())),
                    ListenerPlan("udp", port, target=ForwardTarget(*echo.getsockname())),
                ),
            )
            request(Path(home), {"do": "apply", "plan": write_plan(plan)})
            measure(process.pid, int(sink.getsockname()[1]), port, echo)
        finally:
            process.terminate()
            process.wait()


def measure(pid: int, direct: int, port: int, echo: socket.socket) -> None:
    print(f"TCP, direct:    {SIZE / push(direct) / 1e6:8.0f} MB/s")
    before = cpu_of(pid)
    print(f"TCP, forwarded: {SIZE / push(port) / 1e6:8.0f} MB/s,"
          f" {(cpu_of(pid) - before) / SIZE * 1e9:.2f} s of CPU for 1 GB")  # fmt: skip
    before, began = cpu_of(pid), time.monotonic()
    for _ in range(CONNECTIONS):
        with socket.create_connection((LOCALHOST, port)) as client:
            client.shutdown(socket.SHUT_WR)
            client.recv(1)
    print(f"connections:    {CONNECTIONS / (time.monotonic() - began):8.0f} a second,"
          f" {(cpu_of(pid) - before) / CONNECTIONS * 1e3:.2f} ms of CPU each")  # fmt: skip
    before, began = cpu_of(pid), time.monotonic()
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as client:
        client.connect((LOCALHOST, port))
        for _ in range(DATAGRAMS):
            client.send(b"x" * 200)
            data, sender = echo.recvfrom(2000)
            echo.sendto(data, sender)
            client.recv(2000)
    print(f"UDP:            {DATAGRAMS / (time.monotonic() - began):8.0f} round trips a second,"
          f" {(cpu_of(pid) - before) / DATAGRAMS * 1e6:.0f} us of CPU each")  # fmt: skip
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    print(f"memory:         {pages * os.sysconf('SC_PAGE_SIZE') / 1e6:8.0f} MB")


def swallow(sink: socket.socket) -> None:
    while True:
        client, _ = sink.accept()
        threading.Thread(target=read_to_end, args=(client,), daemon=True).start()


def read_to_end(client: socket.socket) -> None:
    buffer = bytearray(1 << 18)
    with client:
        while client.recv_into(buffer):
            pass


def push(port: int) -> float:
    """Seconds for SIZE bytes."""
    block, began = b"x" * (1 << 18), time.monotonic()
    with socket.create_connection((LOCALHOST, port)) as client:
        for _ in range(SIZE // len(block)):
            client.sendall(block)
        client.shutdown(socket.SHUT_WR)
        client.recv(1)
    return time.monotonic() - began


def request(home: Path, body: object) -> None:
    while True:
        with socket.socket(socket.AF_UNIX) as control:
            try:
                control.connect(str(home / "control"))
            except OSError:
                time.sleep(0.05)
                continue
            control.sendall(json.dumps(body).encode() + b"\n")
            assert "error" not in json.loads(control.makefile().readline())
            return


def cpu_of(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


if __name__ == "__main__":
    main()
