"""A test run leaves no files and no processes behind."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.suite.test_left_out import FEW_PLUGINS

TESTS = Path(__file__).resolve().parents[1]
MESSY = """
import os, subprocess, tempfile
from pathlib import Path

def test_it(tmp_path):
    Path(tempfile.mkdtemp()).chmod(0)
    (tmp_path / "file").write_text("x")
    (Path(os.environ["BERTH_WORK"]) / "berth-agent-1").mkdir()
    left = subprocess.Popen(["sleep", "1000"], start_new_session=True)
    Path("left").write_text(str(left.pid))
"""
# No servers are started.
NOWHERE = {"DATABASE_URL": "postgresql://127.0.0.1:1/none", "REDIS_URL": "redis://127.0.0.1:1/0"}
OURS = ("PYTEST_DEBUG_TEMPROOT", "PYTEST_XDIST_WORKER", "BERTH_WORK", "TMPDIR")


@pytest.mark.parametrize("workers", [[], ["-n", "2"]], ids=["one process", "two workers"])
def test_leftover_files_and_processes_end_with_the_run(tmp_path: Path, workers: list[str]) -> None:
    (tmp_path / "test_messy.py").write_text(MESSY)
    (tmp_path / "pytest.ini").write_text("[pytest]\ntmp_path_retention_policy = failed\n")
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    environment = {name: value for name, value in os.environ.items() if name not in OURS}
    environment |= {**NOWHERE, **FEW_PLUGINS}
    environment |= {"TMPDIR": str(temporary), "PYTHONPATH": str(TESTS.parent)}
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-p",
        "xdist",
        "-p",
        "no:cacheprovider",
        "-p",
        "tests.boot",
        *workers,
    ]
    done = subprocess.run(
        [*command, "-c", "pytest.ini", "test_messy.py"],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "ended a process that a test left: sleep 1000" in done.stderr
    left = Path(f"/proc/{(tmp_path / 'left').read_text()}/cmdline")
    assert not left.exists() or left.read_bytes() == b"", "it runs, and is no zombie"
    assert [str(path) for path in temporary.rglob("*") if not path.name.startswith("pytest-")] == []
