"""`make up` starts and stops one stack of real processes in the ways people use it."""

import os
import re
import shutil
import signal
import socket
import stat
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from urllib.parse import urlsplit

import psycopg
import pytest

from project.kernel.embedded.process import free_port
from tests.end_to_end.stack import READY, Stack, wait_gone


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    """In a private home folder, as new users have it."""
    private = tmp_path_factory.mktemp("home")
    private.chmod(0o700)
    stack = Stack(private / "state", free_port())
    stack.launch()
    yield stack
    assert stack.process is not None
    if stack.process.poll() is None:
        stack.stop()


def test_a_first_start_says_where_and_how_to_sign_in(stack: Stack) -> None:
    stack.wait_for(r"starting; the page will be at http://127\.0\.0\.1:\d+/")
    password = stack.wait_for(
        rf"open http://127.0.0.1:{stack.port}/ and sign in as admin, password (\S+) ", 60
    )
    assert (stack.home / "admin-password").read_text().strip() == password
    assert stack.status() < 500


def test_only_the_owner_can_read_the_state_folder_and_its_secrets(stack: Stack) -> None:
    assert stat.S_IMODE(stack.home.stat().st_mode) == 0o700
    for name in (
        "admin-password",
        "secret-key",
        "services.json",
        "lock",
        "postgres/password",
        "valkey/password",
        "postgres/postgres.log",
    ):
        assert stat.S_IMODE((stack.home / name).stat().st_mode) == 0o600, name


def test_no_secret_is_in_a_command_line(stack: Stack) -> None:
    secrets = [
        (stack.home / name).read_text().strip()
        for name in ("admin-password", "secret-key", "postgres/password", "valkey/password")
    ]
    commands = " ".join(stack.list_processes().values())
    assert not [secret for secret in secrets if secret in commands]


def test_postgres_and_valkey_do_not_run_as_root(stack: Stack) -> None:
    for part in ("bin/postgres", "valkey-server"):
        assert Path(f"/proc/{stack.pid_of(part)}").stat().st_uid != 0


def test_every_process_listens_on_loopback_only(stack: Stack) -> None:
    rows = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    inodes = {row[9]: row[1] for row in rows if row[3] == "0A"}  # LISTEN
    ours = set()
    for pid in stack.list_processes():
        for handle in Path(f"/proc/{pid}/fd").iterdir():
            with suppress(FileNotFoundError):  # closed meanwhile
                if found := re.match(r"socket:\[(\d+)\]", str(handle.readlink())):
                    ours.add(inodes.get(found[1], ""))
    assert {address.split(":")[0] for address in ours - {""}} == {"0100007F"}


def test_a_second_start_is_refused_and_leaves_the_first_running(stack: Stack) -> None:
    code, said = Stack(stack.home, free_port()).refused()
    assert code == 1
    assert f"already runs on {stack.home}: http://127.0.0.1:{stack.port}/" in said
    assert stack.status() < 500


def test_a_port_in_use_is_named_with_the_way_out(stack: Stack, tmp_path: Path) -> None:
    code, said = Stack(tmp_path / "other", stack.port).refused()
    assert code == 1
    assert said.strip() == (
        f"Port {stack.port} on 127.0.0.1 is in use by another program. Choose another: "
        f"BERTH_PORT={stack.port + 1} make up"
    )


def test_management_commands_find_the_running_database(stack: Stack) -> None:
    done = stack.manage("migrate", "--check")
    assert done.returncode == 0, done.stderr


def test_a_database_of_a_newer_berth_is_refused_with_the_command_to_run(stack: Stack) -> None:
    row = (
        "insert into django_migrations (app, name, applied) values ('pools', "
        "'9999_of_tomorrow', now())"
    )
    assert (
        stack.manage(
            "shell",
            "--no-imports",
            "-c",
            f'from django.db import connection as c; c.cursor().execute("{row}")',
        ).returncode
        == 0
    )
    done = stack.manage("prepare", "--embedded")
    assert done.returncode == 1
    assert (
        "pools.9999_of_tomorrow" in done.stderr
        and "git pull; make up" in done.stderr
        and "make restore FILE=" in done.stderr
    )
    undo = "delete from django_migrations where name = '9999_of_tomorrow'"
    assert (
        stack.manage(
            "shell",
            "--no-imports",
            "-c",
            f'from django.db import connection as c; c.cursor().execute("{undo}")',
        ).returncode
        == 0
    )


def test_a_database_with_data_is_dumped_before_it_is_migrated(stack: Stack) -> None:
    stack.execute("drop table django_session")
    stack.execute("delete from django_migrations where app = 'sessions'")
    done = stack.manage("prepare", "--embedded")
    assert done.returncode == 0, done.stderr
    (made,) = (stack.home / "backups").glob("*-before-migration.dump")
    assert f"Migrations to apply: 1. A dump of the database before them is {made}" in done.stdout
    assert stat.S_IMODE(made.stat().st_mode) == 0o600
    assert stack.execute("select count(*) from django_session") == [(0,)]


@pytest.mark.parametrize(
    "part", ["embedded.web", "manage.py controllers", "celery", "bin/postgres", "valkey-server"]
)
def test_a_killed_process_is_started_again(stack: Stack, part: str) -> None:
    os.kill(stack.pid_of(part), signal.SIGKILL)
    stack.wait_for(r"ended \(SIGKILL\); (?:it starts again|its spare takes over)")
    stack.wait_for_process(part)
    assert stack.status() < 500


def test_a_killed_supervisor_leaves_no_orphan_and_no_data_is_lost(stack: Stack) -> None:
    stack.execute("insert into auth_group (name) values ('kept')")
    before = list(stack.list_processes())
    assert len(before) >= 5
    stack.stop(signal.SIGKILL)
    assert wait_gone(before, 10) == []
    stack.start()
    assert stack.execute("select name from auth_group") == [("kept",)]


def test_ctrl_c_ends_every_process_also_with_an_open_connection(stack: Stack) -> None:
    with socket.create_connection(("127.0.0.1", stack.port)):  # a browser that keeps its connection
        before = list(stack.list_processes())
        stack.stop()
    assert wait_gone(before, 0) == []
    assert stack.process is not None and stack.process.returncode == 0
    assert not (stack.home / "services.json").exists()


@pytest.mark.skipif(
    os.geteuid() != 0 or not shutil.which("setpriv"), reason="only root becomes somebody else"
)
def test_an_ordinary_user_can_run_the_stack(tmp_path: Path) -> None:
    """The user may read everything, because this Python may lie in root's private home, and owns
    only its own folder.
    """
    for parent in (tmp_path, *tmp_path.parents[:2]):
        parent.chmod(0o711)
    os.chown(tmp_path, 65534, 65534)
    become = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"]
    become += ["--inh-caps=+dac_read_search", "--ambient-caps=+dac_read_search"]
    stack = Stack(
        tmp_path / "state",
        free_port(),
        [*become, sys.executable],
        HOME=str(tmp_path),
        PYTHONDONTWRITEBYTECODE="1",
    )
    stack.start()
    before = list(stack.list_processes())
    assert {Path(f"/proc/{pid}").stat().st_uid for pid in before} == {65534}
    assert stack.stop() < 5
    assert wait_gone(before, 0) == []


def test_configured_services_replace_the_embedded_services(tmp_path: Path) -> None:
    server = urlsplit(os.environ["DATABASE_URL"])
    with psycopg.connect(server._replace(path="/postgres").geturl(), autocommit=True) as connection:
        connection.execute("create database own_services")
    own = {
        "DATABASE_URL": server._replace(path="/own_services").geturl(),
        "REDIS_URL": os.environ["REDIS_URL"],
    }
    stack = Stack(tmp_path / "state", free_port(), **own)
    stack.launch()
    stack.wait_for("uses the services of DATABASE_URL and REDIS_URL")
    stack.wait_for(READY, 60)
    assert not [
        command
        for command in stack.list_processes().values()
        if "bin/postgres" in command or "valkey-server" in command
    ]
    assert stack.status() == 200
    assert stack.stop() < 5


def test_a_database_that_does_not_answer_is_named(tmp_path: Path) -> None:
    own = {
        "DATABASE_URL": f"postgresql://berth:secret@127.0.0.1:{free_port()}/berth",
        "REDIS_URL": "redis://127.0.0.1:1/0",
    }
    code, said = Stack(tmp_path / "state", free_port(), **own).refused()
    assert code == 1
    assert "The database does not answer. Check DATABASE_URL." in said
    assert "secret" not in said
