"""Runs one function in a child process with limits on CPU time, memory, duration and output.

It reads untrusted input that may need far more memory than its size: archives, plans. The child has
no secrets in its environment and writes no files. When it exceeds a limit, only the child ends.
Starting it takes about 50 ms.
"""

import gc
import importlib
import json
import os
import resource
import selectors
import subprocess
import sys
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from project.kernel import errors
from project.kernel.errors import BerthError

ROOT = Path(__file__).resolve().parents[3]
START = f"import sys; sys.path.insert(0, sys.argv[1]); from {__name__} import main; main()"
CHUNK_BYTES = 1 << 18
EXIT_SECONDS = 5.0  # the child's time to exit after its answer
OUT_OF_MEMORY = 3  # exit code
ANSWERED, REFUSED = b"A", b"R"  # the first byte of an answer
LONGEST_ERROR = 2000
FILES = 64  # open files, for imports
OOM_SCORE = "800"  # the kernel kills the child first when the machine is short of memory


@dataclass(frozen=True, slots=True)
class SandboxLimits:
    memory: int  # bytes of address space
    cpu: int  # seconds
    wall: float  # seconds
    output: int  # bytes


class ChildFailed(Exception):
    """The child ended without an answer. `limit` names what it exceeded: memory, cpu, wall or
    output; empty: it failed otherwise.
    """

    def __init__(self, limit: str, detail: str) -> None:
        super().__init__(detail)
        self.limit = limit


def run_limited(function: str, data: bytes, limits: SandboxLimits) -> bytes:
    """Returns the result of `function` ("package.module:name", bytes to bytes) for `data`.

    Raises the BerthError that the function raises, as its nearest class in `project.kernel.errors`,
    and ChildFailed if the child exceeds a limit or fails otherwise. The child can import only the
    standard library and the modules of this project.
    """
    order = json.dumps(
        {"function": function, "size": len(data), "memory": limits.memory, "cpu": limits.cpu}
    )
    process = subprocess.Popen(
        [sys.executable, "-I", "-S", "-B", "-c", START, str(ROOT), order],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        cwd="/",
        env=_environment(),
        start_new_session=True,
    )
    try:
        answer, complaint = _exchange(process, data, limits)
        code = process.wait(EXIT_SECONDS)
    except subprocess.TimeoutExpired:
        raise ChildFailed("wall", "The child did not exit after its answer.")
    finally:
        process.kill()
        process.wait()
        for pipe in (process.stdin, process.stdout, process.stderr):
            if pipe is not None:
                with suppress(BrokenPipeError):
                    pipe.close()
    if code == 0 and answer[:1] == ANSWERED:
        return bytes(answer[1:])
    if code == 0 and answer[:1] == REFUSED:
        raise _read_error(bytes(answer[1:]))
    raise _explain(code, complaint, limits)


def _environment() -> dict[str, str]:
    """An environment without secrets; it keeps the path of Python's libraries."""
    return {name: os.environ[name] for name in ("LD_LIBRARY_PATH",) if name in os.environ}


def _exchange(
    process: subprocess.Popen[bytes], data: bytes, limits: SandboxLimits
) -> tuple[bytearray, bytes]:
    """Writes the input and reads the answer at the same time, until the child closes its output."""
    assert process.stdin is not None and process.stdout is not None and process.stderr is not None
    until = time.monotonic() + limits.wall
    rest, answer, complaint = memoryview(data), bytearray(), bytearray()
    os.set_blocking(process.stdin.fileno(), False)
    with selectors.DefaultSelector() as waiting:
        waiting.register(process.stdin, selectors.EVENT_WRITE)
        waiting.register(process.stdout, selectors.EVENT_READ)
        waiting.register(process.stderr, selectors.EVENT_READ)
        while waiting.get_map():
            left = until - time.monotonic()
            if left <= 0:
                raise ChildFailed("wall", f"It took longer than {limits.wall:.0f} s.")
            for key, _ in waiting.select(left):
                pipe = key.fileobj
                if pipe is process.stdin:
                    rest = _write_some(process.stdin, rest)
                    if not rest:
                        waiting.unregister(process.stdin)
                        process.stdin.close()
                    continue
                piece = os.read(key.fd, CHUNK_BYTES)
                if not piece:
                    waiting.unregister(pipe)
                elif pipe is process.stdout:
                    answer += piece
                elif len(complaint) < LONGEST_ERROR:
                    complaint += piece
                if len(answer) > limits.output:
                    raise ChildFailed(
                        "output", f"Its answer is larger than {limits.output:,} bytes."
                    )
    return answer, bytes(complaint)


def _write_some(pipe: IO[bytes], rest: memoryview) -> memoryview:
    """The rest of the input; empty if the child has stopped reading."""
    try:
        return rest[os.write(pipe.fileno(), rest[:CHUNK_BYTES]) :]
    except BlockingIOError:
        return rest
    except BrokenPipeError:
        return rest[:0]


def _read_error(data: bytes) -> BerthError:
    found = json.loads(data)
    kind = getattr(errors, found["kind"], BerthError)
    error: BerthError = kind(found["detail"], code=found["code"], way_out=found["way_out"])
    return error


def _explain(code: int, complaint: bytes, limits: SandboxLimits) -> ChildFailed:
    if code == OUT_OF_MEMORY:
        return ChildFailed("memory", f"It needs more than {limits.memory / 1e6:,.0f} MB of memory.")
    if -code in (24, 9):  # XCPU, and KILL a second later
        return ChildFailed("cpu", f"It needs more than {limits.cpu} s of CPU time.")
    last = complaint.decode("utf-8", "replace").strip().splitlines()[-1:]
    return ChildFailed(
        "", f"Its reader ended with exit code {code}{': ' if last else ''}{''.join(last)[:300]}."
    )


# In the child -------------------------------------------------------------------------------------


def main() -> None:
    order = json.loads(sys.argv[2])
    gc.disable()  # parsed input has no cycles; collections only cost time
    for name, value in (
        ("RLIMIT_AS", order["memory"]),
        ("RLIMIT_FSIZE", 0),
        ("RLIMIT_CORE", 0),
        ("RLIMIT_NOFILE", FILES),
    ):
        _limit(name, value, value)
    _limit("RLIMIT_CPU", order["cpu"], order["cpu"] + 1)
    with suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text(OOM_SCORE)
    try:
        module, _, name = order["function"].partition(":")
        answer = ANSWERED + getattr(importlib.import_module(module), name)(
            _read_input(order["size"])
        )
    except MemoryError:
        os._exit(OUT_OF_MEMORY)
    except BerthError as error:
        kind = next(
            kind.__name__ for kind in type(error).__mro__ if kind.__module__ == errors.__name__
        )
        body = {"kind": kind, "detail": error.detail, "code": error.code, "way_out": error.way_out}
        answer = REFUSED + json.dumps(body).encode()
    rest = memoryview(answer)
    while rest:
        rest = rest[os.write(1, rest) :]
    os._exit(0)  # skips the deallocation of millions of objects


def _limit(name: str, soft: int, hard: int) -> None:
    """Lowers a limit; a limit that is already lower stays."""
    number = getattr(resource, name)
    most = resource.getrlimit(number)[1]
    if most != resource.RLIM_INFINITY:
        soft, hard = min(soft, most), min(hard, most)
    with suppress(OSError, ValueError):  # a system without this limit
        resource.setrlimit(number, (soft, hard))


def _read_input(size: int) -> bytes:
    """Reads the input at once: a growing buffer would need twice the memory."""
    data = sys.stdin.buffer.read(size)
    if len(data) != size:
        raise EOFError(f"received {len(data)} of {size} bytes")
    return data
