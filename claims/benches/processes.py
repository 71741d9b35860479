"""Starts processes of the product on the scratch database of a bench, and creates API tokens."""

import os
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from urllib.parse import urlunsplit

from django.contrib.auth.models import User
from django.db import connections

from pools.access.permissions import CLAIMANT
from pools.access.tokens import create_token
from pools.roles.services import create_grant
from project.kernel.models import Beat
from project.settings import environment as env

START = 60.0  # seconds within which a process must start
# A bench calls from one address, with few tokens.
UNLIMITED = {
    "BERTH_REQUESTS_PER_MINUTE": "1000000000",
    "BERTH_CONNECTIONS_PER_ADDRESS": "1000000000",
}


def database_environment() -> Mapping[str, str]:
    """The environment of a process that uses the present database."""
    at = connections["default"].settings_dict
    address = f"{at['USER']}:{at['PASSWORD']}@{at['HOST']}:{at['PORT']}"
    return {
        **os.environ,
        **UNLIMITED,
        "DATABASE_URL": urlunsplit(("postgresql", address, f"/{at['NAME']}", "", "")),
    }


@contextmanager
def running(
    command: Sequence[str], pass_fds: tuple[int, ...] = ()
) -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen(
        [sys.executable, *command],
        cwd=env.ROOT,
        env=dict(database_environment()),
        stdout=sys.stderr,
        pass_fds=pass_fds,
    )
    try:
        yield process
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


@contextmanager
def web_server() -> Iterator[tuple[str, int]]:
    """The web process of `make up`. Yields its address once it answers."""
    listener = socket.create_server(("127.0.0.1", 0))
    reader, writer = os.pipe()
    at_once = os.open(os.devnull, os.O_RDONLY)
    handles = (listener.fileno(), at_once, writer)
    try:
        with running(["-m", "project.kernel.embedded.web", *map(str, handles)], handles):
            if not select.select([reader], [], [], START)[0]:
                raise RuntimeError("the web server does not start")
            yield listener.getsockname()
    finally:
        listener.close()
        for handle in (reader, at_once, writer):
            os.close(handle)


@contextmanager
def controller(command: str, beat: str) -> Iterator[None]:
    """Runs a management command with controllers. Yields after its first heartbeat."""
    with running(["manage.py", command]):
        wait_for(lambda: Beat.objects.filter(name=beat).exists(), f"{command} sends no heartbeat")
        yield


def wait_for(condition: Callable[[], bool], otherwise: str) -> None:
    end = time.monotonic() + START
    while not condition():
        if time.monotonic() > end:
            raise RuntimeError(otherwise)
        time.sleep(0.1)


def make_token(name: str, role: str = CLAIMANT) -> str:
    """A token of a new user with this role in all pools."""
    user = User(username=name)
    user.set_unusable_password()
    user.save()
    create_grant(role=role, user=user)
    return create_token(user=user, name="bench")[1]
