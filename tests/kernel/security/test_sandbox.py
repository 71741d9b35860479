"""A sandboxed function in a child process answers, refuses, or ends at its limits without harming
the parent.
"""

import dataclasses
import os
from contextlib import suppress
from pathlib import Path

import pytest

from project.kernel.errors import Refused
from project.kernel.security.sandbox import ChildFailed, SandboxLimits, run_limited

LIMITS = SandboxLimits(memory=256 << 20, cpu=5, wall=20.0, output=10_000_000)


def limited(name: str, data: bytes = b"", **limits: float) -> bytes:
    return run_limited(
        f"tests.kernel.security.sandbox_work:{name}", data, dataclasses.replace(LIMITS, **limits)
    )


def test_large_input_comes_back_as_a_large_answer() -> None:
    data = os.urandom(4_000_000)
    assert limited("echo", data) == data


def test_refusal_in_the_child_is_raised_in_the_parent() -> None:
    with pytest.raises(Refused) as caught:
        limited("refuse", b"too odd")
    assert (caught.value.code, caught.value.detail, caught.value.way_out) == (
        "odd",
        "too odd",
        "Send another.",
    )


@pytest.mark.parametrize(
    ("name", "limit", "limits"),
    [
        ("use_memory", "memory", {}),
        ("use_cpu", "cpu", {"cpu": 1}),
        ("wait", "wall", {"wall": 0.5}),
        ("answer_much", "output", {"output": 1000}),
        ("fail", "", {}),
        ("end", "", {}),
        ("not_there", "", {}),
    ],
)
def test_child_that_exceeds_a_limit_ends_and_names_the_limit(
    name: str, limit: str, limits: dict[str, float]
) -> None:
    with pytest.raises(ChildFailed) as caught:
        limited(name, **limits)
    assert caught.value.limit == limit, str(caught.value)


def test_failure_names_its_error() -> None:
    with pytest.raises(ChildFailed, match="ZeroDivisionError"):
        limited("fail")


def test_input_that_the_child_does_not_read_blocks_nothing() -> None:
    assert limited("answer_little", b"x" * 50_000_000) == b"done"


def test_child_has_no_secrets_and_writes_no_files(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("SECRET_KEY", "hunter2")
    assert limited("tell_environment") == b""
    with pytest.raises(ChildFailed):
        limited("write_file", str(tmp_path / "file").encode())
    assert not (tmp_path / "file").exists() or (tmp_path / "file").stat().st_size == 0


def test_no_pipe_stays_open() -> None:
    before = set(Path("/proc/self/fd").iterdir())
    for name, limits in (("echo", {}), ("wait", {"wall": 0.3}), ("answer_much", {"output": 1000})):
        with suppress(ChildFailed):
            limited(name, **limits)
    assert set(Path("/proc/self/fd").iterdir()) == before
