"""Options of the agent, and its start."""

from __future__ import annotations

import argparse
import os
import queue
import re
import secrets
import signal
import sys
import tempfile
from pathlib import Path
from typing import Any, Callable, Sequence

from .common.errors import Unusable
from .common.log import Journal
from .common.state import State
from .earlier_runs import Leftovers
from .loop import Agent
from .processes.init import Init
from .processes.isolation import Isolation
from .processes.namespaces import why_not
from .processes.process_table import children
from .processes.users import TaskUsers, end_strays
from .runner import Context
from .server.client import BerthClient
from .version import name_version
from .workdir.folders import choose_base, is_open

TOKEN = re.compile(r"[\x21-\x7e]{8,1000}\Z")
STRAY_GRACE = 5.0  # who let go of its mark; a sweep may take 40 s in all
SWEEP_GRACE = 10.0
SWEEP_WAIT = 5.0
STILL_ENDING = 5  # exit code


def build_parser(prog: str = "berth-agent") -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog=prog, description="Runs Berth's tasks in the slots of one member."
    )
    add_arguments(parser)
    parser.add_argument("--version", "--once-version", action="version", version=name_version())
    return parser


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--url",
        default=os.environ.get("BERTH_URL", ""),
        help="where Berth answers: https://berth.example (or BERTH_URL)",
    )
    parser.add_argument(
        "--token-file",
        default=os.environ.get("BERTH_AGENT_TOKEN_FILE", ""),
        help="file with the member's token (or BERTH_AGENT_TOKEN_FILE)",
    )
    parser.add_argument(
        "--state",
        default=os.environ.get("BERTH_AGENT_STATE", ""),
        help="folder of this agent's own; kept over its restarts (or BERTH_AGENT_STATE)",
    )
    parser.add_argument(
        "--work", default="", help="folder for the tasks' files (default: beside the state)"
    )
    parser.add_argument(
        "--task-user",
        default="",
        help=(
            "who tasks run as, where the agent is root: auto (default: a number each), a name, a "
            "number, or same"
        ),
    )
    parser.add_argument(
        "--isolation",
        choices=("none", "namespaces"),
        default="none",
        help=(
            "namespaces: each task sees no other processes, its own /tmp, and nothing of this "
            "agent's state; it writes to its own folder"
        ),
    )
    parser.add_argument(
        "--hide",
        action="append",
        default=[],
        metavar="PATH",
        help="with namespaces: not there for tasks",
    )
    parser.add_argument(
        "--writable",
        action="append",
        default=[],
        metavar="FOLDER",
        help="with namespaces: tasks may write there, too",
    )
    parser.add_argument(
        "--ca-file",
        default=None,
        help="certificates that the server's is checked against, instead of the system's",
    )
    parser.add_argument(
        "--exit-when-away",
        type=float,
        default=0,
        metavar="SECONDS",
        help="end when the server is away this long and nothing runs",
    )
    parser.add_argument(
        "--give-up",
        type=float,
        default=600,
        metavar="SECONDS",
        help="end (3) when the token is refused this long and nothing runs",
    )
    parser.add_argument(
        "--end-within",
        type=float,
        default=read_seconds("BERTH_AGENT_END_WITHIN"),
        metavar="SECONDS",
        help=(
            "end this long after TERM at the latest: tasks that still run are interrupted in time "
            "for that (or BERTH_AGENT_END_WITHIN)"
        ),
    )
    parser.add_argument(
        "--sweep",
        action="store_true",
        help="only end the processes that a dead agent of this state folder left",
    )
    parser.add_argument(
        "--sweep-wait",
        type=float,
        default=SWEEP_WAIT,
        metavar="SECONDS",
        help=(
            "with --sweep: exit with 5 when a program that was interrupted needs longer than this "
            "to finish what it began"
        ),
    )


def read_seconds(name: str) -> float:
    """0: nothing is said."""
    try:
        return max(0.0, float(os.environ.get(name) or 0))
    except ValueError:
        return 0.0


def main(argv: Sequence[str] | None = None) -> int:
    return start(build_parser().parse_args(argv))


def start(options: Any) -> int:
    if os.getpid() == 1 and not options.sweep:
        code = Init().split()
        if code is not None:
            return code
    journal = Journal()
    try:
        if not options.state:
            raise Unusable("Give the agent a folder of its own in --state.")
        state = State(Path(options.state).absolute())
        if options.sweep:
            return sweep(state, options.sweep_wait)
        if not options.url:
            raise Unusable("Give the address of the Berth server in --url.")
        client = BerthClient(options.url, token_reader(options.token_file), options.ca_file)
        users = TaskUsers(options.task_user)
        users.check()
        if users.is_separate:
            check_shut(Path(options.token_file).absolute())
        state.lock()
        base = choose_base(state.folder, options.work, users.is_separate)
        isolation = read_isolation(options, state, base)
        if not users.is_separate and isolation is None:
            journal.note(
                "tasks run as this agent's own user, who can read its token: run it as root, or on "
                "a machine of its own"
            )
        inbox: queue.SimpleQueue[Any] = queue.SimpleQueue()
        context = Context(
            client,
            state,
            base,
            users,
            secrets.token_hex(8),
            state.identify(),
            journal,
            lambda: inbox.put(("wake", None)),
        )
        context.isolation = isolation
    except (Unusable, OSError) as error:
        sys.stderr.write(f"berth-agent: {error}\n")
        return error.exit_code if isinstance(error, Unusable) else 2
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda number, frame: inbox.put(("signal", int(number))))
    children.adopt()
    journal.note("starts", version=name_version(), url=options.url, state=state.folder, work=base)
    return Agent(context, options.exit_when_away, options.give_up, inbox, options.end_within).run()


def read_isolation(options: Any, state: State, base: Path) -> Isolation | None:
    if options.isolation == "none":
        return None
    if os.geteuid() == 0:
        raise Unusable(
            "--isolation namespaces is for an agent that is not root: tasks of a root agent have "
            "users of their own."
        )
    with tempfile.TemporaryDirectory(dir=str(base)) as scratch:
        if why := why_not(scratch):
            raise Unusable(f"--isolation namespaces is not possible here. {why}")
    hidden = [str(state.folder), str(base), str(Path(options.token_file).absolute()), *options.hide]
    return Isolation(tuple(hidden), tuple(options.writable))


def sweep(state: State, wait_s: float = SWEEP_WAIT) -> int:
    """Ends what is left. Folders stay: plans wait in them, and what is not yet reported; whoever
    removes the state removes them, too.
    """
    state.lock()
    state.load()
    leftovers = Leftovers(state, state.identify())
    leftovers.find()
    is_clean = leftovers.end_others(SWEEP_GRACE)
    still = [record.name for record in leftovers.wait(wait_s)]
    if still:
        names = ", ".join(still)
        sys.stderr.write(
            f"berth-agent: {names} was interrupted and has not finished what it began yet. Try "
            "again later.\n"
        )
        return STILL_ENDING
    return 0 if end_strays(STRAY_GRACE) and is_clean else 1


def check_shut(token: Path) -> None:
    """Tasks run as others so that they do not get the token: then it must not lie open to them."""
    is_readable = bool(token.stat().st_mode & 0o004) and all(
        is_open(folder) for folder in token.resolve().parents
    )
    if is_readable:
        raise Unusable(
            f"Every user of this machine can read the token file {token}, tasks too. Close it: "
            f"chmod 600 {token}"
        )


def token_reader(path: str) -> Callable[[], str]:
    """The file is read again when the token is refused: it may have been rotated."""
    if not path:
        raise Unusable(
            "Give the file with the member's token in --token-file. The token itself never stands "
            "in a command line."
        )

    def read() -> str:
        try:
            token = Path(path).read_text(encoding="ascii").strip()
        except (OSError, ValueError) as error:
            raise Unusable(f"The token file {path} cannot be read: {error}.") from error
        if not TOKEN.match(token):
            raise Unusable(f"The token file {path} holds no token.")
        return token

    return read
