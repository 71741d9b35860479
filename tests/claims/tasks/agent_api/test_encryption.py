"""Encryption at rest of values and files, key rotation, and missing keys."""

import os
import stat
from pathlib import Path
from typing import Any

import pytest
from django.core.files.base import ContentFile

from claims.tasks.files import sealed_files
from project.kernel.errors import NotFound
from project.kernel.security import encryption
from project.kernel.security.private_files import create_private

SECRET = b"a password that nobody else may read " * 3


@pytest.fixture(autouse=True)
def home(tmp_path: Path, settings: Any) -> Any:
    settings.BERTH_HOME = tmp_path
    settings.BERTH_SEALING_KEYS = []
    settings.BERTH_MAKES_SEALING_KEY = True
    settings.STORAGES = settings.STORAGES | {
        "sealed": {
            "BACKEND": "claims.tasks.files.sealed_files.DurableStorage",
            "OPTIONS": {"location": tmp_path / "files"},
        }
    }
    encryption.forget()
    yield
    encryption.forget()


def test_a_sealed_value_is_unsealed_and_not_readable() -> None:
    sealed = encryption.seal(SECRET)
    assert encryption.unseal(sealed) == SECRET
    assert b"password" not in sealed and encryption.is_current(sealed)
    assert encryption.seal(SECRET) != sealed, "equal texts look different"


def test_the_sealing_key_is_created_once_with_mode_0600(tmp_path: Path) -> None:
    first = encryption.key_id()
    encryption.forget()
    assert encryption.key_id() == first
    assert stat.S_IMODE((tmp_path / "sealing-key").stat().st_mode) == 0o600


def test_a_missing_sealing_key_is_reported_with_a_way_out(settings: Any) -> None:
    settings.BERTH_MAKES_SEALING_KEY = False
    with pytest.raises(encryption.SealError) as caught:
        encryption.seal(b"x")
    assert caught.value.code == "no_sealing_key" and "BERTH_SEALING_KEYS" in caught.value.way_out


def test_a_malformed_key_is_refused_without_being_shown(settings: Any) -> None:
    settings.BERTH_SEALING_KEYS = ["too-short-secret"]
    with pytest.raises(encryption.SealError) as caught:
        encryption.seal(b"x")
    assert caught.value.code == "bad_sealing_key" and "too-short" not in str(caught.value)


def test_keys_rotate_and_a_missing_key_is_named(settings: Any) -> None:
    old, new = encryption.make_key(), encryption.make_key()
    settings.BERTH_SEALING_KEYS = [old]
    sealed, number = encryption.seal(SECRET), encryption.key_id()
    settings.BERTH_SEALING_KEYS = [new, old]
    assert encryption.unseal(sealed) == SECRET and not encryption.is_current(sealed)
    again = encryption.seal(encryption.unseal(sealed))
    settings.BERTH_SEALING_KEYS = [new]
    assert encryption.unseal(again) == SECRET
    with pytest.raises(encryption.SealError, match=number):
        encryption.unseal(sealed)


def test_a_key_added_to_the_file_is_used_without_a_restart() -> None:
    encryption.seal(b"x")
    other = encryption.make_key()
    before = encryption.read_file()
    encryption.write_file([other, *before])
    ring = encryption.KeyRing.of([other])
    elsewhere = (
        encryption.MARK
        + ring.ids[0]
        + encryption.base64.urlsafe_b64decode(ring.fernet.encrypt(SECRET))
    )
    assert encryption.unseal(elsewhere) == SECRET


@pytest.mark.parametrize(
    "change", [lambda s: s[:-1] + bytes([s[-1] ^ 1]), lambda s: s[:30], lambda s: b"plain text"]
)
def test_altered_sealed_data_is_refused(change: Any) -> None:
    with pytest.raises(encryption.SealError):
        encryption.unseal(change(encryption.seal(SECRET)))


@pytest.mark.parametrize(
    "size", [0, 1, sealed_files.FRAME, sealed_files.FRAME + 1, 3 * sealed_files.FRAME]
)
def test_a_sealed_file_is_saved_read_and_deleted(size: int, tmp_path: Path) -> None:
    data = (SECRET * (size // len(SECRET) + 1))[:size]
    name = sealed_files.save_file("plan", "12-34", data)
    assert sealed_files.read_file(name) == data and sealed_files.owner_of(name) == "12-34"
    on_disk = [path for path in (tmp_path / "files").rglob("*") if path.is_file()]
    assert len(on_disk) == 1 and b"password" not in on_disk[0].read_bytes()
    sealed_files.delete_file(name)
    sealed_files.delete_file(name)
    with pytest.raises(NotFound) as caught:
        sealed_files.read_file(name)
    assert caught.value.code == "file_missing"


def test_missing_or_reordered_pieces_of_a_file_are_refused() -> None:
    sealed = b"".join(sealed_files.iterate_sealed(b"a" * (2 * sealed_files.FRAME + 5)))
    pieces = list(sealed_files.split_pieces(ContentFile(sealed)))
    assert b"".join(sealed_files.unseal_pieces(pieces)) == b"a" * (2 * sealed_files.FRAME + 5)
    for wrong in ([0, 1], [1, 0, 2], [0, 2], []):
        with pytest.raises(NotFound):
            list(sealed_files.unseal_pieces(pieces[i] for i in wrong))


def no_rename(old: str, new: str) -> bool:
    raise AssertionError("a folder replaces a file in its place")


def test_a_sealed_file_is_resealed_once_with_a_new_key(settings: Any) -> None:
    old, new = encryption.make_key(), encryption.make_key()
    settings.BERTH_SEALING_KEYS = [old]
    name = sealed_files.save_file("json", "1-2", SECRET)
    settings.BERTH_SEALING_KEYS = [new, old]
    assert sealed_files.reseal_file(name, no_rename) and not sealed_files.reseal_file(
        name, no_rename
    )
    settings.BERTH_SEALING_KEYS = [new]
    assert sealed_files.read_file(name) == SECRET


def test_no_copy_of_a_key_remains_where_files_cannot_be_linked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(old: Path, new: Path) -> None:
        raise PermissionError("no links on this file system")

    monkeypatch.setattr(os, "link", refuse)
    with pytest.raises(PermissionError):
        create_private(tmp_path / "keys" / "sealing-key", "a key")
    assert list((tmp_path / "keys").iterdir()) == []
