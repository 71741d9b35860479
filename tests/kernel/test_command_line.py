"""Commands without a running Berth name the way to start it; the traceback is shown on request."""

import gc
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from project.kernel.embedded.process import free_port
from project.kernel.management.command_line import CommandLine

ROOT = Path(__file__).resolve().parents[2]


def manage(home: Path, *arguments: str, **more: str) -> subprocess.CompletedProcess[str]:
    inherited = {
        name: value
        for name, value in os.environ.items()
        if name not in ("DATABASE_URL", "REDIS_URL")
    }
    environment = (
        inherited
        | {"BERTH_HOME": str(home), "DJANGO_SETTINGS_MODULE": "project.settings.local"}
        | more
    )
    return subprocess.run(
        [sys.executable, "manage.py", *arguments],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
    )


@pytest.mark.parametrize(
    "command", [["token", "list", "ana"], ["doctor"], ["export"]], ids=lambda command: command[0]
)
def test_command_without_a_running_berth_says_how_to_start_it(
    tmp_path: Path, command: list[str]
) -> None:
    done = manage(tmp_path, *command)
    assert done.returncode == 1
    assert (
        f"Berth does not run in {tmp_path}. Start it: make up." in done.stderr
        and "BERTH_HOME" in done.stderr
    )
    assert "Traceback" not in done.stderr


def test_killed_berth_and_external_database_have_different_errors(tmp_path: Path) -> None:
    url = f"postgresql://berth:secret@127.0.0.1:{free_port()}/berth"
    (tmp_path / "services.json").write_text(json.dumps({"DATABASE_URL": url}))
    killed, own = manage(tmp_path, "export"), manage(tmp_path, "export", DATABASE_URL=url)
    assert "may have been killed. Start it: make up." in killed.stderr
    assert "The database of DATABASE_URL does not answer." in own.stderr
    assert "secret" not in killed.stderr + own.stderr


def test_traceback_is_shown_on_request(tmp_path: Path) -> None:
    assert "Traceback" in manage(tmp_path, "export", "--traceback").stderr


def test_garbage_is_collected_again_once_a_command_is_loaded() -> None:
    gc.disable()
    try:
        CommandLine(["manage.py", "doctor"]).fetch_command("doctor")
        assert gc.isenabled()
    finally:
        gc.enable()


@pytest.mark.parametrize(
    ("name", "checks"), [("doctor", []), ("token", []), ("sendtestemail", "__all__")]
)
def test_command_of_berth_starts_without_checks_of_the_code(name: str, checks: object) -> None:
    command = CommandLine(["manage.py", name]).fetch_command(name)
    assert command.requires_system_checks == checks
