"""Functions that the children of test_sandbox.py run. It imports only the standard library and
the project.
"""

import os
import time
from pathlib import Path

from project.kernel.errors import Refused


def echo(data: bytes) -> bytes:
    return data


def refuse(data: bytes) -> bytes:
    raise Refused(data.decode(), code="odd", way_out="Send another.")


def use_memory(data: bytes) -> bytes:
    return bytes(1 << 40)


def use_cpu(data: bytes) -> bytes:
    while True:
        pass


def wait(data: bytes) -> bytes:
    time.sleep(600)
    return b""


def answer_much(data: bytes) -> bytes:
    return b"x" * 2_000_000


def answer_little(data: bytes) -> bytes:
    return b"done"


def fail(data: bytes) -> bytes:
    return bytes(1 // 0)


def end(data: bytes) -> bytes:
    os._exit(7)


def tell_environment(data: bytes) -> bytes:
    return "".join(sorted(set(os.environ) - {"LC_CTYPE"})).encode()  # which Python sets itself


def write_file(data: bytes) -> bytes:
    Path(data.decode()).write_bytes(b"x")
    return b""
