"""The log on the agent's disk: whole up to its limit, then head and tail, in chunks that never
change.
"""

import os
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from slots.agent.logs.log_buffer import LogBuffer, fit
from slots.agent.logs.masking import Masker

MOST = 1000


def read_all(log_buffer: LogBuffer, most: int = MOST) -> str:
    text, seq = "", 0
    while (chunk := log_buffer.chunk(seq, most)) is not None:
        assert len(chunk.text.encode()) <= most
        text, seq = text + chunk.text, seq + 1
    return text


def filled(
    folder: Path,
    *pieces: bytes,
    head: int = 10_000,
    tail: int = 1000,
    secrets: tuple[bytes, ...] = (),
) -> LogBuffer:
    log_buffer = LogBuffer(folder, head, tail, Masker(list(secrets)))
    for piece in pieces:
        log_buffer.write(piece)
    return log_buffer


@settings(
    suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=60
)
@given(st.lists(st.text(max_size=300), max_size=30), st.integers(20, 64))
def test_log_text_round_trips(tmp_path_factory, pieces: list[str], most: int) -> None:  # type: ignore[no-untyped-def]
    whole = "".join(pieces).encode("utf-8", "replace")
    log_buffer = filled(
        tmp_path_factory.mktemp("spool"),
        *(whole[at : at + 7] for at in range(0, len(whole), 7)),
        head=1_000_000,
    )
    log_buffer.end()
    assert read_all(log_buffer, most) == whole.decode().replace("\0", "\ufffd")
    log_buffer.close()


def test_character_is_not_split_while_more_bytes_may_come(tmp_path: Path) -> None:
    log_buffer = filled(tmp_path, "aä".encode()[:2])
    assert log_buffer.chunk(0, MOST).text == "a"  # type: ignore[union-attr]
    assert log_buffer.chunk(1, MOST) is None
    log_buffer.write("ä".encode()[1:])
    assert log_buffer.chunk(1, MOST).text == "ä"  # type: ignore[union-attr]


def test_invalid_bytes_and_nul_are_replaced_within_the_limit(tmp_path: Path) -> None:
    log_buffer = filled(tmp_path, b"\xff\x00" * 2000, head=12_000)
    log_buffer.end()
    assert read_all(log_buffer) == "\ufffd" * 4000
    assert 30 <= fit(b"\xff" * 100, 100, True)[0] <= 33


def test_binary_output_counts_by_its_encoded_size(tmp_path: Path) -> None:
    log_buffer = filled(tmp_path, *[os.urandom(4096)] * 50)
    log_buffer.end()
    assert len(read_all(log_buffer).encode()) < 11_200
    assert log_buffer.left_out > 200_000


def test_long_log_keeps_head_and_tail_with_a_note_between(tmp_path: Path) -> None:
    lines = [b"line %06d\n" % number for number in range(100_000)]
    log_buffer = filled(
        tmp_path, *(b"".join(lines[at : at + 1000]) for at in range(0, 100_000, 1000))
    )
    disk = sum(path.stat().st_size for path in tmp_path.iterdir())
    assert disk < 12_000
    assert log_buffer.chunk(0, MOST) is not None
    log_buffer.end()
    text = read_all(log_buffer)
    head, _, tail = text.partition("\n\x1b[2m... ")
    assert head.encode() == b"".join(lines)[:10_000]
    assert tail.endswith("line 099999\n")
    said = int(tail.split(" ")[0].replace(",", ""))
    kept_tail = tail.partition("\x1b[0m\n")[2]
    assert said == log_buffer.left_out == 100_000 * 12 - 10_000 - len(kept_tail)
    marked = [
        chunk
        for seq in range(len(log_buffer.cut))
        if (chunk := log_buffer.chunk(seq, MOST)) and chunk.left_out
    ]
    assert [chunk.left_out for chunk in marked] == [said]


def test_log_slightly_over_the_head_is_kept_whole(tmp_path: Path) -> None:
    log_buffer = filled(tmp_path, b"a" * 10_000, b"b" * 900)
    log_buffer.end()
    assert read_all(log_buffer) == "a" * 10_000 + "b" * 900
    assert log_buffer.left_out == 0


def test_chunks_stay_unchanged_after_a_restart(tmp_path: Path) -> None:
    log_buffer = filled(tmp_path, b"one")
    first = log_buffer.chunk(0, MOST)
    log_buffer.write(b"two")
    assert log_buffer.chunk(1, MOST).text == "two"  # type: ignore[union-attr]
    log_buffer.write(b"three" + b"x" * 20_000)
    log_buffer.close()
    again = LogBuffer.reopen(tmp_path)
    again.end()
    assert again.chunk(0, MOST) == first
    text = read_all(again)
    assert text.startswith("onetwothree") and "bytes are left out here" in text
    again.close()
    assert read_all(LogBuffer.reopen(tmp_path)) == text  # and a third time


def test_full_disk_stops_no_task_and_is_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log_buffer = filled(tmp_path, b"first\n")

    def full(*args: object) -> int:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "pwrite", full)
        log_buffer.write(b"second\n" * 10_000)
    log_buffer.write(b"third\n")
    log_buffer.end()
    assert log_buffer.is_broken
    assert log_buffer.left_out == 70_000
    text = read_all(log_buffer)
    assert text.startswith("first\n") and text.endswith("third\n")
    assert "70,000 bytes are left out here: the agent's disk is full" in text


def test_secrets_are_masked_before_they_reach_the_disk(tmp_path: Path) -> None:
    log_buffer = filled(tmp_path, b"a swo", b"rdfi", b"sh b", b" swordfi", secrets=(b"swordfish",))
    assert b"swordfi" not in (tmp_path / "head").read_bytes()
    log_buffer.append_line("Berth: swordfish ends")
    log_buffer.end()
    assert read_all(log_buffer) == "a *** b swordfi\n\x1b[2mBerth: *** ends\x1b[0m\n"
