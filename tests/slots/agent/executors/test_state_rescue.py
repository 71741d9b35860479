"""Rescue of a state that its backend refused, while processes of its task may still write beside
it.
"""

import errno
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from slots.agent.common.state import Record
from slots.agent.executors import state_rescue


@pytest.fixture
def record(tmp_path: Path) -> Record:
    (tmp_path / "source").mkdir()
    return Record(1, 11, "apply", 1, extra={"state": [str(tmp_path / "source"), ".", ""]})


@pytest.fixture
def left(tmp_path: Path) -> Path:
    return tmp_path / "source" / state_rescue.RESCUED


@pytest.fixture
def folder(tmp_path: Path, record: Record) -> Iterator[int]:
    handle = os.open(tmp_path / "source", os.O_RDONLY)
    yield handle
    os.close(handle)


def test_unsaved_state_is_kept_privately(tmp_path: Path, record: Record, left: Path) -> None:
    left.write_bytes(b"s" * 3_000_000)
    kept = Path(state_rescue.rescue_state(tmp_path, record))
    assert kept.read_bytes() == left.read_bytes()
    assert kept.stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("how", ["link", "symlink", "folder"])
def test_state_replaced_by_a_link_or_folder_is_not_rescued(
    how: str, tmp_path: Path, record: Record, left: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "secret").write_text("of somebody else")
    monkeypatch.setattr(state_rescue, "stamp_of", lambda *_: "it was fine a moment ago")
    if how == "link":
        left.hardlink_to(tmp_path / "secret")
    elif how == "symlink":
        left.symlink_to(tmp_path / "secret")
    else:
        left.mkdir()
    assert state_rescue.rescue_state(tmp_path, record) == ""
    assert list((tmp_path / "rescued").glob("*")) == []
    assert (tmp_path / "secret").read_text() == "of somebody else"


def test_copy_of_a_growing_state_stops_at_its_first_size(
    folder: int, tmp_path: Path, left: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    left.write_bytes(b"state")
    fstat = os.fstat

    def grows(handle: int) -> os.stat_result:
        found = fstat(handle)
        with left.open("ab") as more:
            more.write(b"x" * 1000)
        return found

    monkeypatch.setattr(state_rescue.os, "fstat", grows)
    state_rescue.copy(folder, tmp_path / "kept")
    assert (tmp_path / "kept").read_bytes() == b"state"


def test_failed_rescue_leaves_no_partial_copy(
    tmp_path: Path, record: Record, left: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    left.write_bytes(b"state")

    def fails(*_: object, **__: object) -> None:
        raise OSError(errno.EXDEV, "another disk")

    monkeypatch.setattr(state_rescue.os, "fsync", fails)
    monkeypatch.setattr(state_rescue.os, "replace", fails)
    assert state_rescue.rescue_state(tmp_path, record) == ""
    assert list((tmp_path / "rescued").glob("*")) == []
    assert left.read_bytes() == b"state"
