"""Tasks of an ordinary user's agent run as Berth's user in namespaces, and see neither its state
nor its processes.
"""

import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path

import pytest

from slots.agent_build import build_agent
from tests.slots.agent import ordinary_user
from tests.slots.agent.conftest import Agent
from tests.slots.agent.executors.test_tofu import pack
from tests.slots.agent.executors.test_tofu_provider import INTERRUPTED, World
from tests.slots.agent.fake_berth import TOKEN, Server
from tests.waiting import wait_until

SECRET = "this-is-a-password"
ATTACK = Path(__file__).with_name("attack.py").read_text()
pytestmark = pytest.mark.skipif(
    not ordinary_user.has_namespaces(), reason="this system gives ordinary users no namespaces"
)


own_user = pytest.mark.skipif(
    os.geteuid() != 0, reason="only root has a user of whom it knows every process"
)


@dataclass
class Machine:
    """What lies and runs on the machine of an ordinary user who runs Berth."""

    folder: Path
    home: Path  # BERTH_HOME
    code: Path
    victim: int  # a process of Berth
    start: Callable[..., "OrdinaryAgent"]


@pytest.fixture
def machine(server: Server) -> Iterator[Machine]:
    with ordinary_user.own_folder() as folder, ExitStack() as stack:
        home, code, state = folder / "home", folder / "code", folder / "home/agents/lab-m.1"
        for place in (state, code, folder / "bin", folder / "shared"):
            place.mkdir(parents=True)
        (folder / "agent.pyz").write_bytes(build_agent().data)
        (folder / "bin/tool").write_text("#!/bin/sh\necho the tool runs\n")
        (folder / "bin/tool").chmod(0o755)
        (home / "admin-password").write_text(SECRET)
        (state / "token-1").write_text(TOKEN)
        (code / "code.py").write_text("")
        own = ordinary_user.UID if os.geteuid() == 0 else os.geteuid()
        shared = Path(f"/dev/shm/berth-attack-{own}")
        shared.write_text(SECRET)
        stack.callback(shared.unlink)
        for path in (home / "socket", Path(f"/tmp/berth-attack-{own}")):
            stack.callback(path.unlink, missing_ok=True)
            stack.enter_context(answering(path))
        for path in [*folder.rglob("*"), shared, Path(f"/tmp/berth-attack-{own}")]:
            if os.geteuid() == 0:
                os.chown(path, own, own)
        victim = subprocess.Popen(
            [ordinary_user.python(), "-c", "import time; time.sleep(600)", SECRET],
            env={"PASSWORD": SECRET},
            cwd=home,
            **ordinary_user.options(),
        )
        stack.callback(victim.wait)
        stack.callback(victim.kill)
        stack.callback(end_tasks)

        def start(*options: str) -> OrdinaryAgent:
            agent = OrdinaryAgent(server.url, folder, *options)
            stack.callback(agent.kill)
            return agent

        yield Machine(folder, home, code, victim.pid, start)


def end_tasks() -> None:
    """A task that is not isolated may leave processes that its killed agent cannot end. Only
    root has a user for these tests alone.
    """
    for left in ordinary_user.list_processes() if os.geteuid() == 0 else ():
        with suppress(ProcessLookupError):
            os.kill(left, signal.SIGKILL)


class OrdinaryAgent(Agent):
    path = ""

    def start(self) -> None:
        state = self.folder / "home/agents/lab-m.1"
        command = [
            ordinary_user.python(),
            str(self.folder / "agent.pyz"),
            "--url",
            self.url,
            "--token-file",
            str(state / "token-1"),
        ]
        command += ["--state", str(state), *self.options]
        environment = {
            "PATH": self.path or f"{self.folder}/bin:{os.defpath}",
            "HOME": str(self.folder),
        }
        with self.said.open("ab") as log:
            self.process = subprocess.Popen(
                command,
                cwd="/",
                env=environment,
                stderr=log,
                stdin=subprocess.DEVNULL,
                **ordinary_user.options(),
            )


def answering(path: Path) -> socket.socket:
    """A socket that sends the secret to each client."""
    path.unlink(missing_ok=True)
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(path))
    listener.listen()

    def serve() -> None:
        while True:
            try:
                line, _ = listener.accept()
            except OSError:
                return
            with line:
                line.sendall(SECRET.encode())

    threading.Thread(target=serve, daemon=True).start()
    return listener


def isolated(machine: Machine, *more: str) -> list[str]:
    return ["--isolation", "namespaces", "--hide", str(machine.home), *more]


def attack(server: Server, machine: Machine) -> dict[str, str]:
    """The ways by which a task saw the secret, beside the folder of another task."""
    server.order(1, 10, commands={"plan": f"echo {SECRET} > theirs; echo there; sleep 300"})
    server.wait(lambda: "there" in server.log(1, 10))
    command = f"{ordinary_user.python()} attack.py {machine.home} {machine.code} {machine.victim}"
    server.order(
        2,
        20,
        commands={"plan": command},
        source=server.archive(pack({"attack.py": ATTACK})),
        slot=2,
    )
    result = server.result(2, 20)
    assert result["outcome"] == "planned", (result, server.log(2, 20))
    found = dict(re.findall(r"^(.+): (LEAKED|kept)$", server.log(2, 20), re.M))
    assert len(found) == 19, server.log(2, 20)
    return found


def test_isolated_task_cannot_reach_secrets_of_berth(server: Server, machine: Machine) -> None:
    machine.start(*isolated(machine))
    found = attack(server, machine)
    assert set(found.values()) == {"kept"}, found
    assert (machine.code / "code.py").read_text() == ""


def test_without_namespaces_the_same_task_reaches_a_secret(
    server: Server, machine: Machine
) -> None:
    machine.start()
    found = attack(server, machine)
    ways = {
        "file",
        "another task's folder",
        "environ",
        "cmdline",
        "signal",
        "socket in the state",
        "socket in /tmp",
        "shared memory",
    }
    assert {way for way, told in found.items() if told == "LEAKED"} >= ways | {
        "cwd",
        "root",
        "Berth's code",
    }, found


def test_isolated_task_works_in_its_own_folder(server: Server, machine: Machine) -> None:
    machine.start(*isolated(machine, "--writable", str(machine.folder / "shared")))
    shared = machine.folder / "shared"
    plan = [
        (
            "id -u; cat a; tool; echo kept > /tmp/kept; echo x > $TMPDIR/x; echo x > $HOME/x; echo "
            "x > /dev/shm/x"
        ),
        (
            f"echo written > {shared}/file; echo x > {machine.folder}/x || echo read-only; ls "
            f"{machine.home}/agents/*/work | wc -l"
        ),
        (
            "echo saved > $BERTH_PLAN_FILE; python3 -c 'import pty; pty.openpty(); "
            'print("terminal")\'; exit 2'
        ),
    ]
    server.order(
        1, 10, commands={"plan": "; ".join(plan)}, source=server.archive(pack({"a": "content\n"}))
    )
    planned = server.result(1, 10)
    lines = server.log(1, 10).splitlines()
    assert planned["outcome"] == "planned", (planned, lines)
    own = ordinary_user.UID if os.geteuid() == 0 else os.geteuid()
    assert lines[:3] == [str(own), "content", "the tool runs"] and lines[-1] == "terminal", lines
    assert "read-only" in lines and "1" in lines and (shared / "file").read_text() == "written\n"
    plan_of = {"digest": planned["digest"], "size": 6, "facts": planned["facts"], "has_file": True}
    server.order(
        1,
        11,
        "apply",
        commands={"apply": "cat a $BERTH_PLAN_FILE /tmp/kept; exit 0"},
        source={"kind": "none"},
        plan=plan_of,
    )
    assert server.result(1, 11)["outcome"] == "applied", server.log(1, 11)
    assert "content\nsaved\nkept\n" in server.log(1, 11)


@pytest.mark.parametrize(
    ("command", "code"), [("exit 7", 7), ("kill -9 $$", -9), ("no-such-program", 127)]
)
def test_isolated_program_keeps_its_exit_status(
    server: Server, machine: Machine, command: str, code: int
) -> None:
    machine.start(*isolated(machine))
    server.order(1, 10, commands={"plan": command})
    result = server.result(1, 10)
    assert (result["outcome"], result["exit_code"]) == ("failed", code), (result, server.log(1, 10))


@own_user
def test_cancelled_isolated_task_is_interrupted_and_leaves_no_process(
    server: Server, machine: Machine
) -> None:
    agent = machine.start(*isolated(machine))
    wait = "while :; do sleep 0.1; done"
    plan = (
        f"trap 'echo asked; exit 1' TERM INT; setsid env -i sh -c \"trap '' TERM INT; {wait}\" & "
        f"echo begun; {wait}"
    )
    server.order(1, 10, commands={"plan": plan})
    server.wait(lambda: "begun" in server.log(1, 10))
    server.cancel(1, 10)
    assert server.result(1, 10)["outcome"] == "cancelled"
    assert "asked" in server.log(1, 10)
    wait_until(lambda: set(ordinary_user.list_processes()) == {agent.process.pid, machine.victim})


@own_user
def test_background_processes_end_with_their_isolated_task(
    server: Server, machine: Machine
) -> None:
    agent = machine.start(*isolated(machine))
    server.order(
        1, 10, commands={"plan": "setsid env -i sleep 300 & setsid setsid sleep 300 & echo done"}
    )
    assert server.result(1, 10)["outcome"] == "planned"
    wait_until(lambda: set(ordinary_user.list_processes()) == {agent.process.pid, machine.victim})


def test_unreadable_folders_stop_no_isolated_task(server: Server, machine: Machine) -> None:
    """In PATH and among what is hidden. In /tmp, of which the task has one of its own."""
    shut = Path(tempfile.mkdtemp(prefix="berth-shut-"))
    try:
        (shut / "bin").mkdir()
        shut.chmod(0o000)
        agent = machine.start(*isolated(machine, "--hide", str(shut / "secret")))
        agent.end()
        (machine.folder / "bin/more").symlink_to(shut / "bin")
        agent.options = (*agent.options, "--writable", str(shut / "bin"))
        agent.path = f"{shut}/bin:{machine.folder}/bin/more:{os.defpath}"
        agent.start()
        server.order(1, 10, commands={"plan": "echo runs"})
        assert server.result(1, 10)["outcome"] == "planned", server.log(1, 10)
    finally:
        shut.chmod(0o700)
        shutil.rmtree(shut)


def test_agent_that_cannot_isolate_begins_no_task(server: Server, machine: Machine) -> None:
    """The system gives its user no further process here."""
    state = machine.home / "agents/lab-m.1"
    code = (
        "import resource, runpy, sys; del sys.argv[0]; "
        "resource.setrlimit(resource.RLIMIT_NPROC, (1, 1))"
    )
    command = [
        ordinary_user.python(),
        "-c",
        f"{code}; runpy.run_path(sys.argv[0], run_name='__main__')",
        str(machine.folder / "agent.pyz"),
    ]
    command += [
        "--url",
        server.url,
        "--token-file",
        str(state / "token-1"),
        "--state",
        str(state),
        *isolated(machine),
    ]
    done = subprocess.run(
        command,
        cwd="/",
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        **ordinary_user.options(),
    )
    assert done.returncode == 2 and "--isolation namespaces is not possible here" in done.stderr, (
        done
    )
    assert not server.hellos


def test_cancelled_isolated_apply_finishes_the_object_in_flight(
    server: Server, machine: Machine, tofu: Path, tofu_provider: dict[str, str]
) -> None:
    """A real provider process. Program and provider lie in /tmp, of which the task has one
    of its own.
    """
    shared = machine.folder / "shared"
    world = World(
        server, machine.start(*isolated(machine, "--writable", str(shared))), shared, tofu_provider
    )
    world.base["binary"] = str(tofu)
    world.write(world.object("one"), world.slow("two", "depends_on = [files_object.one]"))
    world.begin_apply()
    wait_until(lambda: world.is_begun("two"))
    server.cancel(1, 11)
    server.wait(lambda: INTERRUPTED in server.log(1, 11))
    world.gate.touch()
    assert server.result(1, 11)["outcome"] == "cancelled"
    assert world.made() == world.backend.known() == ["one", "two"]
    assert world.backend.lock == b"" and "Two interrupts" not in server.log(1, 11)


@own_user
def test_isolated_task_ends_when_its_agent_is_killed(server: Server, machine: Machine) -> None:
    agent = machine.start(*isolated(machine))
    server.order(1, 10, commands={"plan": "setsid sleep 300 & echo begun; exec sleep 300"})
    server.wait(lambda: "begun" in server.log(1, 10))
    agent.kill()
    wait_until(lambda: set(ordinary_user.list_processes()) == {machine.victim})


@pytest.mark.skipif(os.geteuid() != 0, reason="only root runs tasks as others")
def test_task_of_a_root_agent_cannot_reach_secrets_of_berth(server: Server) -> None:
    """Berth as root: its state is root's alone, and the task has a user of its own. These two
    rights alone protect Berth from it.
    """
    with ordinary_user.own_folder(0) as folder, ExitStack() as stack:
        home, code = folder / "home", folder / "code"
        state = home / "agents/lab-m.1"
        for place in (state, code):
            place.mkdir(parents=True)
        home.chmod(0o700)
        (home / "admin-password").write_text(SECRET)
        (state / "token-1").write_text(SECRET)
        stack.enter_context(answering(home / "socket"))
        victim = [sys.executable, "-c", "import time; time.sleep(600)"]
        berth = stack.enter_context(subprocess.Popen(victim, env={"PASSWORD": SECRET}, cwd=home))
        stack.callback(berth.kill)
        agent = Agent(server.url, home, "--task-user", "auto")
        stack.callback(agent.kill)
        plan = f"{ordinary_user.python()} attack.py {home} {code} {berth.pid}"
        server.order(
            1, 10, commands={"plan": plan}, source=server.archive(pack({"attack.py": ATTACK}))
        )
        assert server.result(1, 10)["outcome"] == "planned", server.log(1, 10)
        found = dict(re.findall(r"^(.+): (LEAKED|kept)$", server.log(1, 10), re.M))
        assert len(found) == 19 and set(found.values()) == {"kept"}, found
