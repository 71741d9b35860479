"""Sealing: what is kept tells nothing, keys rotate, a key that is missing is named."""

import stat
from pathlib import Path
from typing import Any

import pytest

from claims.runs import files
from project.kernel import vault
from project.kernel.errors import NotFound

SECRET = b"a password that nobody else may read " * 3


@pytest.fixture(autouse=True)
def home(tmp_path: Path, settings: Any) -> Any:
    settings.BERTH_HOME = tmp_path
    settings.BERTH_SEALING_KEYS = []
    settings.BERTH_MAKES_SEALING_KEY = True
    settings.STORAGES = settings.STORAGES | {
        "sealed": {"BACKEND": "claims.runs.files.DurableStorage", "OPTIONS": {"location": tmp_path / "files"}}
    }
    vault.forget()
    yield
    vault.forget()


def test_what_is_sealed_comes_back_and_tells_nothing() -> None:
    sealed = vault.seal(SECRET)
    assert vault.unseal(sealed) == SECRET
    assert b"password" not in sealed and vault.is_current(sealed)
    assert vault.seal(SECRET) != sealed, "equal texts look different"


def test_the_key_is_made_once_and_for_its_owner_alone(tmp_path: Path) -> None:
    first = vault.key_id()
    vault.forget()
    assert vault.key_id() == first
    assert stat.S_IMODE((tmp_path / "sealing-key").stat().st_mode) == 0o600


def test_no_key_is_said_clearly(settings: Any) -> None:
    settings.BERTH_MAKES_SEALING_KEY = False
    with pytest.raises(vault.SealError) as caught:
        vault.seal(b"x")
    assert caught.value.code == "no_sealing_key" and "BERTH_SEALING_KEYS" in caught.value.way_out


def test_a_key_that_is_no_key_is_refused_without_being_shown(settings: Any) -> None:
    settings.BERTH_SEALING_KEYS = ["too-short-secret"]
    with pytest.raises(vault.SealError) as caught:
        vault.seal(b"x")
    assert caught.value.code == "bad_sealing_key" and "too-short" not in str(caught.value)


def test_keys_rotate_and_a_missing_one_is_named(settings: Any) -> None:
    old, new = vault.make_key(), vault.make_key()
    settings.BERTH_SEALING_KEYS = [old]
    sealed, number = vault.seal(SECRET), vault.key_id()
    settings.BERTH_SEALING_KEYS = [new, old]
    assert vault.unseal(sealed) == SECRET and not vault.is_current(sealed)
    again = vault.seal(vault.unseal(sealed))
    settings.BERTH_SEALING_KEYS = [new]
    assert vault.unseal(again) == SECRET
    with pytest.raises(vault.SealError, match=number):
        vault.unseal(sealed)


def test_a_key_added_to_the_file_is_read_without_a_restart() -> None:
    vault.seal(b"x")
    other = vault.make_key()
    before = vault.read_file()
    vault.write_file([other, *before])
    ring = vault.Ring.of([other])
    elsewhere = vault.MARK + ring.ids[0] + vault.base64.urlsafe_b64decode(ring.fernet.encrypt(SECRET))
    assert vault.unseal(elsewhere) == SECRET


@pytest.mark.parametrize("change", [lambda s: s[:-1] + bytes([s[-1] ^ 1]), lambda s: s[:30], lambda s: b"plain text"])
def test_what_was_changed_is_refused(change: Any) -> None:
    with pytest.raises(vault.SealError):
        vault.unseal(change(vault.seal(SECRET)))


@pytest.mark.parametrize("size", [0, 1, files.FRAME, files.FRAME + 1, 3 * files.FRAME])
def test_files_come_back(size: int, tmp_path: Path) -> None:
    data = (SECRET * (size // len(SECRET) + 1))[:size]
    name = files.save_file("plan", "12-34", data)
    assert files.read_file(name) == data and files.whose(name) == "12-34"
    on_disk = [path for path in (tmp_path / "files").rglob("*") if path.is_file()]
    assert len(on_disk) == 1 and b"password" not in on_disk[0].read_bytes()
    files.delete_file(name)
    files.delete_file(name)
    with pytest.raises(NotFound) as caught:
        files.read_file(name)
    assert caught.value.code == "file_missing"


def test_pieces_of_a_file_are_neither_left_out_nor_exchanged() -> None:
    sealed = files.seal_pieces(b"a" * (2 * files.FRAME + 5))
    first, second, third = files.split_pieces(sealed)
    put = [files.LENGTH.pack(len(p)) + p for p in (first, second, third)]
    assert files.unseal_pieces(b"".join(put))
    for wrong in ([0, 1], [1, 0, 2], [0, 2], []):
        with pytest.raises(NotFound):
            files.unseal_pieces(b"".join(put[i] for i in wrong))


def no_rename(old: str, new: str) -> bool:
    raise AssertionError("a folder replaces a file in its place")


def test_files_are_resealed(settings: Any) -> None:
    old, new = vault.make_key(), vault.make_key()
    settings.BERTH_SEALING_KEYS = [old]
    name = files.save_file("json", "1-2", SECRET)
    settings.BERTH_SEALING_KEYS = [new, old]
    assert files.reseal_file(name, no_rename) and not files.reseal_file(name, no_rename)
    settings.BERTH_SEALING_KEYS = [new]
    assert files.read_file(name) == SECRET
