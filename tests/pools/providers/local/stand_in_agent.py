"""A stand-in for the agent process: it keeps its folder's lock, starts a child, and ends when
asked.

python -m tests.pools.providers.local.stand_in_agent --url U --token-file F --state S [...]
with S/stubborn it ignores SIGTERM
"""

import argparse
import fcntl
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any


def say(path: Path, text: str) -> None:
    """Writes the file at once, because a waiting test reads it as soon as it exists."""
    half = path.with_suffix(".half")
    half.write_text(text)
    half.replace(path)


def main() -> int:
    parser = argparse.ArgumentParser()
    for name in ("--url", "--token-file", "--state", "--exit-when-away", "--work"):
        parser.add_argument(name)
    for name in ("--isolation", "--hide", "--writable"):
        parser.add_argument(name, action="append")
    parser.add_argument("--sweep", action="store_true")
    given = parser.parse_args()
    state = Path(given.state)
    if not given.sweep:
        with open(state / "starts", "a") as starts:
            starts.write(f"{os.getpid()}\n")
    lock = open(state / "lock", "a")  # noqa: SIM115  (for as long as we live)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return 3
    if given.sweep:
        return sweep(state)
    # So that a test finds them where the records were changed or removed.
    marked = {**os.environ, "STAND_IN_STATE": str(state)}
    child = subprocess.Popen(["sleep", "1000"], process_group=0, env=marked)
    say(state / "child", str(child.pid))
    # As tasks are.
    outsider = subprocess.Popen(["sleep", "1000"], start_new_session=True, env=marked)
    say(state / "outsider", str(outsider.pid))

    def end(*_: Any) -> None:
        if (state / "stubborn").exists():
            return
        say(state / "ended.json", json.dumps({"why": "asked", "pid": os.getpid()}))
        child.kill()
        outsider.kill()
        sys.exit(0)

    signal.signal(signal.SIGTERM, end)
    say(state / "token", Path(given.token_file).read_text())
    say(state / "up", str(os.getpid()))
    while True:
        signal.pause()


def sweep(state: Path) -> int:
    """As the agent does: what a dead one left is ended."""
    try:
        os.kill(int((state / "outsider").read_text()), signal.SIGKILL)
    except (OSError, ValueError):
        return 0
    return 0


if __name__ == "__main__":
    sys.exit(main())
