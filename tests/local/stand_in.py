"""What the provider starts, without what an agent does: it keeps its folder's lock, starts a child of its own and ends when it is asked.

python -m tests.local.stand_in --url U --token-file F --state S [...]     with S/stubborn it does not end by being asked
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


def main() -> int:
    parser = argparse.ArgumentParser()
    for name in ("--url", "--token-file", "--state", "--exit-when-away"):
        parser.add_argument(name)
    given = parser.parse_args()
    state = Path(given.state)
    lock = open(state / "lock", "a")  # noqa: SIM115  (for as long as we live)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return 3
    child = subprocess.Popen(["sleep", "1000"], process_group=0)
    (state / "child").write_text(str(child.pid))

    def end(*_: Any) -> None:
        if (state / "stubborn").exists():
            return
        (state / "ended.json").write_text(json.dumps({"why": "asked", "pid": os.getpid()}))
        child.kill()
        sys.exit(0)

    signal.signal(signal.SIGTERM, end)
    (state / "token").write_text(Path(given.token_file).read_text())
    (state / "up").write_text(str(os.getpid()))
    while True:
        signal.pause()


if __name__ == "__main__":
    sys.exit(main())
