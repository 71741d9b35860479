"""`make up` by an ordinary user: the sample plans and applies, and a task cannot read secrets of
Berth.
"""

import os
import re
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from pools.providers.local import agent_folder
from project.kernel.embedded import detached
from project.kernel.embedded.process import free_port
from project.sample.scenario import HARBOUR
from tests.end_to_end.stack import COMPILED, ROOT, Stack
from tests.pools.providers.local.make_up import ask, call
from tests.slots.agent import ordinary_user
from tests.slots.agent.processes.test_isolation import ATTACK

WITHIN = 90.0
needs_namespaces = pytest.mark.skipif(
    not ordinary_user.has_namespaces(), reason="this system gives ordinary users no namespaces"
)
POOL = """
kind: Pool
name: lab
provider: local
members: {list: [{name: a}]}
"""


def interpreter(folder: Path) -> list[str]:
    """The interpreter of the tests, as an ordinary user. An interpreter in root's private home is
    mounted at a place that all users may enter.
    """
    if os.geteuid() != 0:
        return [sys.executable]
    uid = ordinary_user.named_uid()
    if uid is None or not ordinary_user.may_read(ROOT / "manage.py"):
        pytest.skip("this system has no ordinary user who may enter this folder")
    become = f"exec setpriv --reuid={uid} --regid={uid} --clear-groups"
    if ordinary_user.may_read(Path(sys.executable).resolve()):
        return ["sh", "-c", f'{become} {sys.executable} "$@"', "sh"]
    place = folder / "python"
    place.mkdir()
    shut = next(
        each
        for each in reversed(Path(sys.base_prefix).parents)
        if not ordinary_user.may_enter(each)
    )
    steps = [
        f"mount --bind {sys.base_prefix} {place}",
        f"mount -t tmpfs -o mode=755 none {shut}",
        f"mkdir -p {sys.base_prefix}",
    ]
    steps += [f"mount --bind {place} {sys.base_prefix}", f'{become} {sys.executable} "$@"']
    return ["unshare", "-m", "sh", "-c", " && ".join(steps), "sh"]


def copy_compiled(target: Path) -> Path:
    """The compiled modules of this run, in a folder of the ordinary user. To compile all of them
    again takes longer than all else here.
    """
    if not Path(COMPILED).is_dir():
        return target
    unfinished = shutil.ignore_patterns("*.pyc.*")  # other tests compile meanwhile
    shutil.copytree(COMPILED, target, ignore=unfinished)
    if os.geteuid() == 0:
        uid = ordinary_user.named_uid() or ordinary_user.UID
        for place, _, files in os.walk(target):
            for name in (".", *files):
                os.chown(Path(place) / name, uid, uid)
    return target


@pytest.fixture(scope="module")
def stack() -> Iterator[Stack]:
    with ordinary_user.own_folder(ordinary_user.named_uid() or ordinary_user.UID) as folder:
        python = interpreter(folder)
        environment = {
            "PYTHONPYCACHEPREFIX": str(copy_compiled(folder / "compiled")),
            "HOME": str(folder),
            "TMPDIR": "/tmp",
        }
        stack = Stack(folder / "home", free_port(), python, BERTH_SAMPLE="1", **environment)
        try:
            yield stack.start(180)
        finally:
            assert stack.process is not None
            if stack.process.poll() is None:
                stack.stop()
            for place in (stack.home / agent_folder.FOLDER).glob("*"):
                if (process := detached.read(place)) is not None:
                    detached.end(process, 5)


@pytest.fixture(scope="module")
def token(stack: Stack) -> str:
    (stack.home.parent / "pools.yaml").write_text(POOL)
    done = stack.manage("apply", "-f", str(stack.home.parent / "pools.yaml"))
    assert done.returncode == 0, done.stderr
    return stack.manage("token", "create", "admin", "test").stdout.strip()


def wait_for(stack: Stack, query: str) -> None:
    stack.wait_rows(query, lambda rows: rows[0][0], WITHIN)


def test_ordinary_user_can_apply_the_sample(stack: Stack) -> None:
    wait_for(stack, "select count(*) from claims_claim where outcome = 'applied'")
    query = f"select spec #>> '{{task,env,HELLO_TARGET}}' from pools_pool where name = '{HARBOUR}'"
    assert list(Path(stack.execute(query)[0][0]).glob("*/index.html"))


@needs_namespaces
def test_task_of_a_claimant_cannot_read_secrets_of_berth(stack: Stack, token: str) -> None:
    secret = (stack.home / "admin-password").read_text().strip()
    attack = ATTACK.replace(
        'SECRET = "drowssap-a-si-siht"[::-1]', f'SECRET = "{secret[::-1]}"[::-1]'
    )
    plan = (
        f"{ordinary_user.python()} attack.py {stack.home} {ROOT}/project {stack.pid_of('celery')}; "
        f"cat {stack.home}/services.json; true"
    )
    run = {
        "executor": "command",
        "commands": {"plan": plan, "apply": "true"},
        "source": {"files": {"attack.py": attack}},
    }
    claim = call(
        stack,
        token,
        "POST",
        "claims/",
        {"pool": "lab", "task": "plan_and_apply", "workspace": "w", "run": run},
    )
    wait_for(
        stack, f"select count(*) from claims_claim where id = {claim['id']} and state = 'reserved'"
    )
    (run_told,) = call(stack, token, "GET", f"claims/{claim['id']}/runs/")["results"]
    log = str(
        ask(
            stack,
            token,
            "GET",
            f"claims/{claim['id']}/runs/{run_told['generation']}/log/?format=text",
        )[1]
    )
    found = dict(re.findall(r"^(.+): (LEAKED|kept)$", log, re.M))
    assert len(found) > 15 and set(found.values()) == {"kept"}, log
    assert "redis://" not in log and "postgresql://" not in log
    assert not (ROOT / "project/code.py").exists()


@needs_namespaces
def test_active_protection_is_reported(stack: Stack, token: str) -> None:
    assert (
        "Tasks on this machine: Each task runs in namespaces of its own"
        in stack.manage("doctor", "I41").stdout
    )
