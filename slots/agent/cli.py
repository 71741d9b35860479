"""Options and start of the agent."""

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
from typing import Callable, Sequence

from .common.errors import Unusable
from .common.log import AgentLog
from .common.state import State
from .earlier_runs import Leftovers
from .loop import Agent, Message
from .processes.init import Init
from .processes.isolation import Isolation
from .processes.namespaces import find_obstacle
from .processes.process_table import children
from .processes.users import TaskUsers, end_strays
from .runner import Context
from .server.client import BerthClient
from .version import name_version
from .workdir.folders import choose_base, is_open

TOKEN = re.compile(r"[\x21-\x7e]{8,1000}\Z")
STRAY_GRACE = 5.0  # seconds for processes without a mark; a sweep takes at most 40 s
SWEEP_GRACE = 10.0
SWEEP_WAIT = 5.0
STILL_ENDING = 5  # exit code


def build_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="berth-agent", description="Runs Berth's tasks in the slots of one member."
    )
    add_arguments(parser)
    parser.add_argument("--version", "--once-version", action="version", version=name_version())
    return parser


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--url",
        default=os.environ.get("BERTH_URL", ""),
        help="address of Berth, like https://berth.example (or BERTH_URL)",
    )
    parser.add_argument(
        "--token-file",
        default=os.environ.get("BERTH_AGENT_TOKEN_FILE", ""),
        help="file with the member's token (or BERTH_AGENT_TOKEN_FILE)",
    )
    parser.add_argument(
        "--state",
        default=os.environ.get("BERTH_AGENT_STATE", ""),
        help="state folder of this agent, kept over restarts (or BERTH_AGENT_STATE)",
    )
    parser.add_argument(
        "--work", default="", help="folder for the files of tasks (default: in the state folder)"
    )
    parser.add_argument(
        "--task-user",
        default="",
        help=(
            "user of tasks, if the agent is root: auto (default: a user id for each task), a name, "
            "an id, or same"
        ),
    )
    parser.add_argument(
        "--isolation",
        choices=("none", "namespaces"),
        default="none",
        help=(
            "namespaces: each task sees only its own processes, has its own /tmp, does not see the "
            "agent's state, and writes only to its own folder"
        ),
    )
    parser.add_argument(
        "--hide",
        action="append",
        default=[],
        metavar="PATH",
        help="with namespaces: path that tasks do not see",
    )
    parser.add_argument(
        "--writable",
        action="append",
        default=[],
        metavar="FOLDER",
        help="with namespaces: further folder that tasks may write to",
    )
    parser.add_argument(
        "--ca-file",
        default=None,
        help="CA certificates for the server's certificate, instead of the system's",
    )
    parser.add_argument(
        "--exit-when-away",
        type=float,
        default=0,
        metavar="SECONDS",
        help="end when the server is away this long and no task runs",
    )
    parser.add_argument(
        "--give-up",
        type=float,
        default=600,
        metavar="SECONDS",
        help="end with code 3 when the token is refused this long and no task runs",
    )
    parser.add_argument(
        "--end-within",
        type=float,
        default=read_seconds("BERTH_AGENT_END_WITHIN"),
        metavar="SECONDS",
        help=(
            "end at most this long after TERM: tasks that still run are interrupted in time (or "
            "BERTH_AGENT_END_WITHIN)"
        ),
    )
    parser.add_argument(
        "--sweep",
        action="store_true",
        help="only end processes that a dead agent of this state folder left",
    )
    parser.add_argument(
        "--sweep-wait",
        type=float,
        default=SWEEP_WAIT,
        metavar="SECONDS",
        help=(
            "with --sweep: exit with code 5 when an interrupted program needs longer than this to "
            "finish its work"
        ),
    )


def read_seconds(name: str) -> float:
    """Seconds of an environment variable; 0 if unset or invalid."""
    try:
        return max(0.0, float(os.environ.get(name) or 0))
    except ValueError:
        return 0.0


def main(argv: Sequence[str] | None = None) -> int:
    return start(build_parser().parse_args(argv))


def start(options: argparse.Namespace) -> int:
    if os.getpid() == 1 and not options.sweep:
        code = Init().split()
        if code is not None:
            return code
    log = AgentLog()
    try:
        if not options.state:
            raise Unusable("Give the state folder of the agent in --state.")
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
            log.info(
                "tasks run as the agent's user and can read its token: run the agent as root, or "
                "on a separate machine"
            )
        inbox: queue.SimpleQueue[Message] = queue.SimpleQueue()
        context = Context(
            client,
            state,
            base,
            users,
            secrets.token_hex(8),
            state.identify(),
            log,
            lambda: inbox.put(("wake", None)),
        )
        context.isolation = isolation
    except (Unusable, OSError) as error:
        sys.stderr.write(f"berth-agent: {error}\n")
        return error.exit_code if isinstance(error, Unusable) else 2
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda number, frame: inbox.put(("signal", int(number))))
    children.adopt()
    log.info("starts", version=name_version(), url=options.url, state=state.folder, work=base)
    return Agent(context, options.exit_when_away, options.give_up, inbox, options.end_within).run()


def read_isolation(options: argparse.Namespace, state: State, base: Path) -> Isolation | None:
    if options.isolation == "none":
        return None
    if os.geteuid() == 0:
        raise Unusable(
            "--isolation namespaces is only for an agent that is not root: tasks of a root agent "
            "have separate users."
        )
    with tempfile.TemporaryDirectory(dir=str(base)) as scratch:
        if why := find_obstacle(scratch):
            raise Unusable(f"--isolation namespaces is not possible here. {why}")
    hidden = [str(state.folder), str(base), str(Path(options.token_file).absolute()), *options.hide]
    return Isolation(tuple(hidden), tuple(options.writable))


def sweep(state: State, wait_s: float = SWEEP_WAIT) -> int:
    """End processes that a dead agent left; returns the exit code. Folders stay, because they have
    plans and unreported runs; they are removed with the state folder.
    """
    state.lock()
    state.load()
    leftovers = Leftovers(state, state.identify())
    leftovers.find()
    is_clean = leftovers.end_unattended(SWEEP_GRACE)
    if names := ", ".join(record.name for record in leftovers.wait(wait_s)):
        sys.stderr.write(
            f"berth-agent: {names} was interrupted and has not finished its work yet. Try again "
            "later.\n"
        )
        return STILL_ENDING
    return 0 if end_strays(STRAY_GRACE) and is_clean else 1


def check_shut(token: Path) -> None:
    """Refuse a token file that other users can read, if tasks run as other users."""
    is_readable = bool(token.stat().st_mode & 0o004) and all(
        is_open(folder) for folder in token.resolve().parents
    )
    if is_readable:
        raise Unusable(
            f"All users of this machine, also those of tasks, can read the token file {token}. "
            f"Protect it: chmod 600 {token}"
        )


def token_reader(path: str) -> Callable[[], str]:
    """A function that reads the token; called again when the token is refused."""
    if not path:
        raise Unusable(
            "Give the file with the member's token in --token-file. The token itself is not "
            "accepted on the command line."
        )

    def read() -> str:
        try:
            token = Path(path).read_text(encoding="ascii").strip()
        except (OSError, ValueError) as error:
            raise Unusable(f"The token file {path} cannot be read: {error}.") from error
        if not TOKEN.match(token):
            raise Unusable(f"The token file {path} contains no token.")
        return token

    return read
