"""A process that claims to be an agent of this Berth is accepted only if it is one."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from pools.providers.local.agent_folder import AGENT, incarnation_in
from project.kernel.embedded import detached

SLEEP = "import sys, time; print(flush=True); time.sleep(60)"
# The process is not dumpable: its folder in /proc then belongs to root.
CLAIM = (
    f"import os, ctypes; os.setgid(64998); os.setuid(64998); ctypes.CDLL(None).prctl(4, 0); {SLEEP}"
)


@pytest.mark.parametrize(("code", "is_found"), [(SLEEP, True), (CLAIM, False)])
def test_agent_process_is_found_unless_another_user_runs_it(
    code: str, is_found: bool, tmp_path: Path
) -> None:
    if not is_found and os.geteuid() != 0:
        pytest.skip("only root becomes another")
    words = [AGENT, "--token-file", str(tmp_path / "token-7"), "--state", str(tmp_path)]
    with subprocess.Popen(
        [sys.executable, "-I", "-S", "-c", code, *words], stdout=subprocess.PIPE
    ) as process:
        try:
            assert process.stdout and process.stdout.readline() == b"\n"
            found = detached.find(tmp_path, incarnation_in)
            assert (found is not None and found.pid == process.pid and found.mark == 7) is is_found
        finally:
            process.kill()
