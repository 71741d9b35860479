"""The first user of an installation and its password."""

from pathlib import Path
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.core.management import call_command

from pools.access.permissions import load_identity


@pytest.mark.django_db
def test_first_user_may_do_everything_including_approvals(settings: Any, tmp_path: Path) -> None:
    settings.BERTH_HOME = tmp_path
    call_command("prepare")
    identity = load_identity(User.objects.get(username="admin").pk)
    assert identity is not None
    assert all(
        identity.may(action, None) for action in ("read", "cordon", "decide", "configure", "grant")
    )
    call_command("prepare")
    assert User.objects.count() == 1


@pytest.mark.django_db
def test_given_password_is_not_stored_in_a_file(
    settings: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings.BERTH_HOME = tmp_path
    monkeypatch.setenv("BERTH_ADMIN_PASSWORD", "a password of my own")
    call_command("prepare")
    assert User.objects.get(username="admin").check_password("a password of my own")
    assert not [
        file
        for file in tmp_path.rglob("*")
        if file.is_file() and "a password of my own" in file.read_text()
    ]


@pytest.mark.django_db
def test_given_password_stored_by_an_earlier_version_is_removed(
    settings: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings.BERTH_HOME = tmp_path
    call_command("prepare")
    made = (tmp_path / "admin-password").read_text()
    monkeypatch.setenv("BERTH_ADMIN_PASSWORD", "a password of my own")
    call_command("prepare")
    assert (tmp_path / "admin-password").read_text() == made, (
        "a password that Berth made is kept for its owner"
    )
    (tmp_path / "admin-password").write_text("a password of my own\n")
    call_command("prepare")
    assert not (tmp_path / "admin-password").exists()
