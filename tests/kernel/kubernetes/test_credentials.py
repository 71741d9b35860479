"""Credentials from exec plugins: a hanging plugin delays no other cluster, and a failure is
reported.
"""

import json
import stat
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from project.kernel.kubernetes import client, exec_plugins
from project.kernel.outbox.operations import Misconfigured, ProviderError

GOOD = {
    "apiVersion": "client.authentication.k8s.io/v1",
    "kind": "ExecCredential",
    "status": {"token": "from-the-plugin"},
}
Write = Callable[[str], None]


@pytest.fixture
def write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Write]:
    """A kubeconfig whose context `slow` signs in by what this program says; `plain` has a token."""
    program, config = tmp_path / "plugin", tmp_path / "config"
    monkeypatch.setenv("BERTH_KUBECONFIG", str(config))

    def write(script: str) -> None:
        program.write_text(f"#!/bin/sh\n{script}\n")
        program.chmod(program.stat().st_mode | stat.S_IXUSR)
        called = {
            "apiVersion": GOOD["apiVersion"],
            "command": str(program),
            "interactiveMode": "Never",
        }
        users = {"slow": {"exec": called}, "plain": {"token": "t"}}
        text = {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "plain",
            "clusters": [{"name": "c", "cluster": {"server": "http://127.0.0.1:1"}}],
            "users": [{"name": name, "user": user} for name, user in users.items()],
            "contexts": [
                {"name": name, "context": {"cluster": "c", "user": name}} for name in users
            ],
        }
        config.write_text(yaml.safe_dump(text))
        client.forget()

    yield write
    client.forget()


def sign_in(context: str) -> Any:
    return client.api_for({"context": context}).connection.client.configuration.api_key.get(
        "BearerToken"
    )


def test_token_of_an_exec_plugin_is_used(write: Write) -> None:
    write(f"cat <<'END'\n{json.dumps(GOOD)}\nEND")
    assert sign_in("slow") == "Bearer from-the-plugin"


@pytest.mark.parametrize(
    ("script", "words"),
    [
        ("echo you have to log in >&2; exit 3", "ends with 3: you have to log in"),
        ("echo secret-that-is-no-json", "does not answer with credentials"),
        ("echo '{\"status\": 1}'", "does not answer with credentials"),
        ('echo \'{"apiVersion": "v0", "status": {"token": "secret"}}\'', "does not answer in"),
    ],
    ids=["fails", "no-json", "no-status", "another-version"],
)
def test_failing_exec_plugin_is_reported_without_its_secrets(
    script: str, words: str, write: Write, caplog: pytest.LogCaptureFixture
) -> None:
    write(script)
    with pytest.raises(Misconfigured, match=words) as caught:
        sign_in("slow")
    assert "secret" not in str(caught.value) + caplog.text


def test_missing_exec_plugin_is_reported(write: Write, tmp_path: Path) -> None:
    write("true")
    (tmp_path / "plugin").unlink()
    with pytest.raises(Misconfigured, match="can't be run"):
        sign_in("slow")


def test_hanging_exec_plugin_is_timed_out(write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exec_plugins, "PATIENCE", 0.5)
    write("sleep 600 & sleep 600")
    begun = time.monotonic()
    with pytest.raises(ProviderError, match="does not end within") as caught:
        sign_in("slow")
    assert not isinstance(caught.value, Misconfigured)
    with pytest.raises(ProviderError, match="does not end within"):
        sign_in("slow")  # known for a moment, and not asked again
    assert time.monotonic() - begun < 60


def test_hanging_exec_plugin_delays_no_other_cluster(write: Write, tmp_path: Path) -> None:
    write(f"touch {tmp_path}/begun; while [ ! -e {tmp_path}/end ]; do sleep 0.05; done; exit 3")
    failed = list[ProviderError]()

    def wait_in_line() -> None:
        try:
            sign_in("slow")
        except ProviderError as error:
            failed.append(error)

    waiting = threading.Thread(target=wait_in_line)
    waiting.start()
    try:
        while not (tmp_path / "begun").exists():
            waiting.join(0.05)
        assert sign_in("plain") == "Bearer t"
        assert waiting.is_alive()
    finally:
        (tmp_path / "end").touch()
        waiting.join()
    assert len(failed) == 1
