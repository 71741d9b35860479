"""python -m tests.faults.campaign [SCENARIO ...]: what `make faults` runs."""

import argparse
import os
import platform
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import django

ROOT = Path(__file__).resolve().parents[3]


def read_commit() -> str:
    """The commit, with "-dirty" if a file outside of docs/ differs from it."""
    done = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], cwd=ROOT, capture_output=True, text=True
    )
    if done.returncode:
        return "unknown"
    changed = subprocess.run(["git", "diff", "--quiet", "HEAD", "--", ".", ":!docs"], cwd=ROOT)
    return done.stdout.strip() + ("-dirty" if changed.returncode else "")


def describe_machine() -> str:
    with Path("/proc/meminfo").open() as file:
        memory = int(file.readline().split()[1]) / 1024**2
    return (
        f"{os.cpu_count()} cores, {memory:.0f} GB, Linux {platform.release()}, "
        f"Python {platform.python_version()}"
    )


def read_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="make faults", description=__doc__)
    parser.add_argument("scenarios", nargs="*", help="names, or beginnings of names; none: all")
    parser.add_argument("--list", action="store_true", help="list the scenarios")
    parser.add_argument("--rounds", type=int, default=0, help="rounds of each; 0: by the median")
    parser.add_argument("--round", type=int, default=None, help="this round only, once more")
    parser.add_argument("--seed", type=int, default=0, help="0: as before, else drawn")
    parser.add_argument("--minutes", type=float, default=0, help="no round starts after this time")
    parser.add_argument("--name", default="", help="name of the campaign; default: the commit")
    parser.add_argument("--report", action="store_true", help="write docs/faults.md, run nothing")
    return parser.parse_args()


def main() -> int:
    given = read_arguments()
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "project.settings.local")
    with tempfile.TemporaryDirectory(prefix="berth-faults-home-") as home:
        os.environ["BERTH_HOME"] = home  # of this process alone, for its settings
        django.setup()
        return run(given)


def run(given: argparse.Namespace) -> int:
    # These need settings.
    from tests.faults.campaign.report import PAGE, write_report  # noqa: PLC0415
    from tests.faults.campaign.rows import KEPT, merge_rows, read_rows, write_rows  # noqa: PLC0415
    from tests.faults.campaign.runner import Runner  # noqa: PLC0415
    from tests.faults.campaign.scenario import FAKE, KNOWN  # noqa: PLC0415
    from tests.faults.campaign.scenarios import load_all  # noqa: PLC0415
    from tests.faults.campaign.state import OtherCommitError, State  # noqa: PLC0415

    load_all()
    chosen = [
        kind
        for name, kind in KNOWN.items()
        if not given.scenarios or any(name.startswith(part) for part in given.scenarios)
    ]
    if not chosen:
        sys.stderr.write(f"No scenario is called {given.scenarios}. There are {', '.join(KNOWN)}\n")
        return 2
    if given.list:
        for kind in chosen:
            print(f"{kind.name:20} {kind.breaks}")
        return 0
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    state = State(cache / "berth" / "faults" / (given.name or read_commit()))
    if given.report:
        rows = merge_rows(read_rows(KEPT), state, KNOWN)
        write_rows(KEPT, rows)
        PAGE.write_text(write_report(rows, KNOWN, state.skipped))
        print(f"wrote {PAGE} and {KEPT}")
        return 1 if state.count_findings() else 0
    seed = given.seed or state.facts.get("seed") or random.SystemRandom().randrange(1, 10**6)
    facts = {"seed": seed, "commit": read_commit(), "machine": describe_machine()}
    try:
        if state.facts != facts:
            state.write_facts(**facts)
    except OtherCommitError as error:
        sys.stderr.write(f"{error}\n")
        return 2
    print(f"seed {seed}, state in {state.file}", flush=True)
    until = time.monotonic() + given.minutes * 60 if given.minutes else float("inf")
    say = lambda text: print(f"{time.strftime('%H:%M:%S')} {text}", flush=True)  # noqa: E731
    Runner(state, seed, most=given.rounds, only=given.round, say=say, until=until).run(chosen)
    found = state.count_findings()
    if faked := dict.fromkeys(done.scenario for done in state.rounds if done.api_server == FAKE):
        sys.stderr.write(
            f"WARNING {FAKE} served {', '.join(faked)}, not a real API server. `make kube` builds "
            "one; then run them under another NAME.\n"
        )
    print(f"{len(state.rounds)} rounds, {found} findings. make faults REPORT=1 writes the report")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
