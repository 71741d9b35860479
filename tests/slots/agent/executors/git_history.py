"""A small git repository for tests."""

import os
import subprocess
from pathlib import Path


def make_history(work: Path, beside: Path) -> None:
    """Two commits of what is there and of a file; which they are is in files named `first`
    and `second`.
    """

    def git(*words: str) -> str:
        env = {**os.environ, "GIT_CONFIG_GLOBAL": "/dev/null", "GIT_CONFIG_NOSYSTEM": "1"}
        identity = [
            "-c",
            "user.name=a",
            "-c",
            "user.email=a@example.com",
            "-c",
            "init.defaultBranch=main",
        ]
        return subprocess.run(
            ["git", *identity, *words],
            cwd=work,
            env=env,
            check=True,
            capture_output=True,
            text=True,
        ).stdout.strip()

    git("init", "-q")
    (work / "infra").mkdir()
    (work / "infra" / "a.txt").write_text("first\n")
    git("add", ".")
    git("commit", "-q", "-m", "first")
    (beside / "first").write_text(git("rev-parse", "HEAD"))
    (work / "infra" / "a.txt").write_text("second\n")
    git("commit", "-q", "-a", "-m", "second")
    (beside / "second").write_text(git("rev-parse", "HEAD"))
