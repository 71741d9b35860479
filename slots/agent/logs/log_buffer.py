"""The log of a run on disk, with a limit: the head in full, then a ring buffer with the tail. Bytes
between are counted and dropped.

The log stays until the server has the result, so it survives network failures and the end of this
process.
"""

from __future__ import annotations

import codecs
import contextlib
import os
import struct
import threading
from pathlib import Path
from typing import NamedTuple

from .masking import Masker

COUNTER = struct.Struct("<Q")
INDEX = struct.Struct("<IIQ")  # sequence number, bytes, offset
REPLACED = "\N{REPLACEMENT CHARACTER}"
LONGEST_CHARACTER = 4


class Chunk(NamedTuple):
    seq: int
    text: str
    left_out: int = 0

    @property
    def lines(self) -> int:
        return self.text.count("\n")


class LogBuffer:
    """One thread writes the task's output, a second thread uploads it.

    The file `head` has the text to upload. `tail` is the ring buffer behind a counter of 8 bytes.
    `index` has the bounds of chunks, so that a sequence number always means the same text.
    """

    def __init__(
        self, folder: Path, head_bytes: int, tail_bytes: int, masker: Masker | None = None
    ) -> None:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self.folder = folder
        with contextlib.suppress(OSError):  # the first failed write of the log is reported
            (folder / "limits").write_text(f"{head_bytes} {tail_bytes}")
        self.head_bytes = head_bytes
        self.tail_bytes = tail_bytes
        self.masker = masker or Masker([])
        self.decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self.lock = threading.Lock()
        self.more = threading.Event()
        self.is_broken = False
        self.lost = 0  # bytes that could not be written to the disk
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC
        self.head = os.open(folder / "head", flags, 0o600)
        self.index = os.open(folder / "index", flags, 0o600)
        self.tail: int | None = (
            os.open(folder / "tail", os.O_RDWR | os.O_CLOEXEC)
            if (folder / "tail").exists()
            else None
        )
        self.written = os.fstat(self.head).st_size
        self.through_tail = (
            COUNTER.unpack(os.pread(self.tail, 8, 0).ljust(8, b"\0"))[0]
            if self.tail is not None
            else 0
        )
        self.cut: list[tuple[int, int]] = self._read_index()
        self.is_ended = (folder / "ended").exists()
        self.gap = int((folder / "ended").read_text() or 0) if self.is_ended else 0

    @classmethod
    def reopen(cls, folder: Path, masker: Masker | None = None) -> LogBuffer:
        """Open an existing log."""
        try:
            head_bytes, tail_bytes = map(int, (folder / "limits").read_text().split())
        except (OSError, ValueError):
            head_bytes, tail_bytes = 1 << 62, 1
        return cls(folder, head_bytes, tail_bytes, masker)

    # Writing

    def write(self, data: bytes) -> None:
        """Append output of the task."""
        with self.lock:
            self._write(self._as_text(self.masker.feed(data)))

    def hide(self, secrets: list[bytes]) -> None:
        """Replace the secrets that are masked from now on."""
        with self.lock:
            self.masker.secrets = secrets

    def append_line(self, text: str) -> None:
        """Append a line of the agent."""
        with self.lock:
            held = self._as_text(self.masker.end(), final=True)
            is_fresh = (held or self._last_byte()) in (b"", b"\n") or held.endswith(b"\n")
            self._write(
                held + self._mask_own(f"{'' if is_fresh else chr(10)}\x1b[2m{text}\x1b[0m\n")
            )

    def end(self) -> None:
        """Finish the log: append held-back bytes, a note about dropped bytes, and the tail."""
        with self.lock:
            if self.is_ended:
                return
            self._write(self._as_text(self.masker.end(), final=True))
            if self.tail is not None or self.lost:
                kept = self._read_tail() if self.tail is not None else b""
                self.gap = self.through_tail - len(kept)
                if self.left_out:
                    why = "the agent's disk is full" if self.lost else "the log exceeds its limit"
                    notice = f"... {self.left_out:,} bytes are left out here: {why} ..."
                    self._append(f"\n\x1b[2m{notice}\x1b[0m\n".encode())
                self._append(kept)
            self.is_ended = True
            try:
                (self.folder / "ended").write_text(str(self.gap))
            except OSError:
                self.is_broken = True
        self.more.set()

    def _mask_own(self, text: str) -> bytes:
        masker = Masker(self.masker.secrets)
        return masker.feed(text.encode("utf-8", "replace")) + masker.end()

    def _as_text(self, data: bytes, final: bool = False) -> bytes:
        """The bytes as they will be uploaded. They are converted before they are counted, because a
        replacement character is three times as long as an invalid byte.
        """
        text = self.decoder.decode(data, final)
        if final:
            self.decoder.reset()
        return text.replace("\0", REPLACED).encode()

    def _write(self, data: bytes) -> None:
        if not data or self.is_ended:
            return
        room = self.head_bytes - self.written
        if room > 0 and self.tail is None:
            self._append(data[:room])
            data = data[room:]
            self.more.set()
        if data:
            self._keep_tail(data)

    def _append(self, data: bytes) -> None:
        try:
            while data:
                count = os.pwrite(self.head, data, self.written)
                self.written += count
                data = data[count:]
        except OSError:
            self.is_broken = True
            self.lost += len(data)

    def _keep_tail(self, data: bytes) -> None:
        size = len(data)
        try:
            if self.tail is None:
                self.tail = os.open(
                    self.folder / "tail", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600
                )
            skipped = max(0, len(data) - self.tail_bytes)  # does not fit into the ring
            total, data = self.through_tail + skipped, data[skipped:]
            while data:
                at = total % self.tail_bytes
                piece = data[: self.tail_bytes - at]
                count = os.pwrite(self.tail, piece, 8 + at)
                total, data = total + count, data[count:]
            self.through_tail = total
            os.pwrite(self.tail, COUNTER.pack(total), 0)
        except OSError:
            self.is_broken = True
            self.lost += size

    def _read_tail(self) -> bytes:
        assert self.tail is not None
        at = self.through_tail % self.tail_bytes
        if self.through_tail <= self.tail_bytes:
            return os.pread(self.tail, self.through_tail, 8)
        data = os.pread(self.tail, self.tail_bytes - at, 8 + at) + os.pread(self.tail, at, 8)
        begin = next(
            (
                skip
                for skip in range(LONGEST_CHARACTER)
                if data[skip : skip + 1] and data[skip] & 0xC0 != 0x80
            ),
            0,
        )
        newline = data.find(b"\n", 0, 4096)
        return data[newline + 1 :] if newline >= 0 else data[begin:]

    def _last_byte(self) -> bytes:
        return (
            os.pread(self.head, 1, self.written - 1)
            if self.written and self.tail is None
            else b"\n"
        )

    # Reading

    @property
    def left_out(self) -> int:
        return self.lost + self.gap

    @property
    def pending(self) -> int:
        """Bytes not yet cut into chunks."""
        return self.written - self._cut_until()

    def count_lines(self) -> int:
        lines, at = 0, 0
        while at < self.written:
            data = os.pread(self.head, 1 << 20, at)
            if not data:
                break
            lines, at = lines + data.count(b"\n"), at + len(data)
        return lines

    def chunk(self, seq: int, most: int) -> Chunk | None:
        """The chunk with this number; it is cut now if it is the next one. None: no data yet."""
        with self.lock:
            if seq < len(self.cut):
                offset, size = self.cut[seq]
                return self._chunk(seq, decode(os.pread(self.head, size, offset)))
            if seq > len(self.cut):
                return None
            offset = self._cut_until()
            data = os.pread(self.head, most, offset) if offset < self.written else b""
            if not data:
                return None
            size, text = fit(
                data, most, is_last=self.is_ended and offset + len(data) == self.written
            )
            if not size:
                return None
            os.pwrite(self.index, INDEX.pack(seq, size, offset), seq * INDEX.size)
            self.cut.append((offset, size))
            return self._chunk(seq, text)

    def _chunk(self, seq: int, text: str) -> Chunk:
        """The first chunk after the gap has the number of dropped bytes."""
        offset, size = self.cut[seq]
        is_after_gap = (
            self.is_ended
            and self.left_out > 0
            and offset + size > self.head_bytes
            and (seq == 0 or self._ends(seq - 1) <= self.head_bytes)
        )
        return Chunk(seq, text, self.left_out if is_after_gap else 0)

    def _ends(self, seq: int) -> int:
        offset, size = self.cut[seq]
        return offset + size

    def _cut_until(self) -> int:
        return self._ends(len(self.cut) - 1) if self.cut else 0

    def _read_index(self) -> list[tuple[int, int]]:
        data = os.pread(self.index, os.fstat(self.index).st_size, 0)
        found: list[tuple[int, int]] = []
        for at in range(0, len(data) - INDEX.size + 1, INDEX.size):
            seq, size, offset = INDEX.unpack_from(data, at)
            if seq != len(found) or offset + size > self.written:
                break
            found.append((offset, size))
        return found

    def close(self) -> None:
        for handle in (self.head, self.index, self.tail):
            if handle is not None:
                os.close(handle)


def fit(data: bytes, most: int, is_last: bool) -> tuple[int, str]:
    """Number of bytes for one chunk, and their text of at most `most` bytes in UTF-8."""
    end = len(data) if is_last else whole_characters(data)
    if not end:
        return 0, ""
    text = decode(data[:end])
    if len(text.encode()) <= most:
        return end, text
    end = max(1, most // len(REPLACED.encode()))  # each byte may be replaced
    end = whole_characters(data[:end]) or end
    return end, decode(data[:end])


def whole_characters(data: bytes) -> int:
    """Number of bytes up to an incomplete character at the end."""
    for back in range(1, min(LONGEST_CHARACTER, len(data)) + 1):
        byte = data[-back]
        if byte & 0xC0 == 0x80:
            continue
        length = 4 if byte >= 0xF0 else 3 if byte >= 0xE0 else 2 if byte >= 0xC0 else 1
        return len(data) - back if length > back else len(data)
    return len(data)


def decode(data: bytes) -> str:
    return data.decode("utf-8", "replace").replace("\0", REPLACED)
