"""Unpacking of source archives, including malicious ones."""

import gzip
import io
import os
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest

from slots.agent.common.errors import TaskFailed
from slots.agent.workdir import archive

Entry = tarfile.TarInfo


def entry(
    name: str, data: bytes = b"", kind: bytes = tarfile.REGTYPE, link: str = "", mode: int = 0o644
) -> tuple[Entry, bytes]:
    one = tarfile.TarInfo(name)
    one.type, one.linkname, one.mode, one.size = kind, link, mode, len(data)
    return one, data


def pack(tmp_path: Path, *entries: tuple[Entry, bytes]) -> Path:
    file = tmp_path / "a.tar.gz"
    with tarfile.open(file, "w:gz") as tar:
        for one, data in entries:
            tar.addfile(one, io.BytesIO(data))
    return file


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "out"
    folder.mkdir()
    return folder


def test_files_folders_and_inner_links_are_unpacked(tmp_path: Path, folder: Path) -> None:
    entries = [
        entry("d", kind=tarfile.DIRTYPE),
        entry("d/run.sh", b"#!/bin/sh", mode=0o4777),
        entry("./a/b/c", b"x"),
    ]
    links = [
        entry("a/up", kind=tarfile.SYMTYPE, link="../d/run.sh"),
        entry("here", kind=tarfile.SYMTYPE, link="a/b"),
    ]
    archive.unpack(pack(tmp_path, *entries, *links), folder)
    assert (folder / "a/up").read_bytes() == b"#!/bin/sh"
    assert (folder / "here/c").read_bytes() == b"x"
    assert (folder / "d/run.sh").stat().st_mode & 0o7777 == 0o700


SYM, HARD = tarfile.SYMTYPE, tarfile.LNKTYPE
ATTACKS: dict[str, list[tuple[Entry, bytes]]] = {
    "up": [entry("../x", b"1")],
    "up in the middle": [entry("a/../../x", b"1")],
    "absolute": [entry("/tmp/x", b"1")],
    "backslash": [entry("..\\x", b"1")],
    "link out": [entry("l", kind=SYM, link="../x")],
    "absolute link": [entry("l", kind=SYM, link="/etc/passwd")],
    "link by way of a link": [entry("x", kind=SYM, link="."), entry("y", kind=SYM, link="x/..")],
    "file through a link": [entry("l", kind=SYM, link="."), entry("l/x", b"1")],
    "link behind a link": [entry("l", kind=SYM, link="."), entry("l/m", kind=SYM, link="n")],
    "hard link": [entry("h", kind=HARD, link="/etc/passwd")],
    "device": [entry("dev", kind=tarfile.CHRTYPE)],
    "pipe": [entry("fifo", kind=tarfile.FIFOTYPE)],
    "twice": [entry("x", b"1"), entry("x", b"2")],
    "file as folder": [entry("x", b"1"), entry("x/y", b"2")],
    "deep": [entry("/".join(["d"] * 100), b"1")],
    "the top itself": [entry(".", kind=SYM, link="etc")],
}


@pytest.mark.parametrize("attack", ATTACKS)
def test_harmful_archive_is_refused(attack: str, tmp_path: Path, folder: Path) -> None:
    before = sorted(path.name for path in tmp_path.iterdir())
    with pytest.raises(TaskFailed) as caught:
        archive.unpack(pack(tmp_path, *ATTACKS[attack]), folder)
    assert caught.value.code == "source_refused"
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted({*before, "a.tar.gz"})
    for root, folders, files in os.walk(folder):
        assert all(
            not Path(root, name).is_symlink() or Path(root, name).resolve().is_relative_to(folder)
            for name in [*folders, *files]
        )


def test_archive_bomb_stops_at_the_limit(tmp_path: Path, folder: Path) -> None:
    file = tmp_path / "bomb.tar.gz"
    with gzip.open(file, "wb") as packed, tarfile.open(fileobj=packed, mode="w") as tar:
        one = tarfile.TarInfo("zeros")
        one.size = 40_000_000
        tar.addfile(one, io.BytesIO(bytes(one.size)))
    with pytest.raises(TaskFailed, match="more than is allowed"):
        archive.unpack(file, folder)
    assert sum(path.stat().st_size for path in folder.iterdir()) <= archive.FREE_BYTES


def test_archive_with_too_many_files_is_refused(
    tmp_path: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(archive, "MOST_FILES", 5)
    with pytest.raises(TaskFailed, match="more than 5 files"):
        archive.unpack(pack(tmp_path, *(entry(f"f{number}") for number in range(6))), folder)


@pytest.mark.parametrize(
    "spoil",
    [
        lambda data: data[:-20],
        lambda data: b"no archive",
        lambda data: data[:40] + b"\xff" * 40 + data[80:],
        lambda data: b"",
    ],
)
def test_corrupt_archive_is_refused(
    tmp_path: Path, folder: Path, spoil: Callable[[bytes], bytes]
) -> None:
    file = pack(tmp_path, entry("a", os.urandom(5000)))
    file.write_bytes(spoil(file.read_bytes()))
    with pytest.raises(TaskFailed):
        archive.unpack(file, folder)


@pytest.mark.parametrize(
    "body",
    [b"1" * 16_000, b"99 a=b\n", b"22 GNU.sparse.major=1\n", b"20000 a=" + b"x" * 19_991 + b"\n"],
)
def test_harmful_header_is_refused_before_tarfile_interprets_it(
    body: bytes, tmp_path: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tarfile.TarInfo, "_proc_pax", None)
    info = tarfile.TarInfo("header")
    info.type, info.size = tarfile.XHDTYPE, len(body)
    file = tmp_path / "a.tar.gz"
    file.write_bytes(
        gzip.compress(
            info.tobuf(tarfile.USTAR_FORMAT)
            + body.ljust(-(-len(body) // 512) * 512, b"\0")
            + bytes(1024)
        )
    )
    with pytest.raises(TaskFailed, match="header|sparse") as caught:
        archive.unpack(file, folder)
    assert caught.value.code == "source_refused"


def test_endless_headers_are_refused(tmp_path: Path, folder: Path) -> None:
    info = tarfile.TarInfo("header")
    info.type, info.size = tarfile.XHDTYPE, len(b"6 a=b\n")
    file = tmp_path / "a.tar.gz"
    file.write_bytes(
        gzip.compress((info.tobuf(tarfile.USTAR_FORMAT) + b"6 a=b\n".ljust(512, b"\0")) * 3000)
    )
    with pytest.raises(TaskFailed) as caught:
        archive.unpack(file, folder)
    assert caught.value.code == "source_refused"
