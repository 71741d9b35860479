"""Headers of a tar archive, checked before `tarfile` interprets them.

Older versions of `tarfile` (CVE-2024-6232) need quadratic time for long headers and extend a sparse
map without limit.
"""

from __future__ import annotations

import re
import tarfile
from typing import Any

LONGEST_HEADER = 16_384  # bytes
RECORD = re.compile(rb"([1-9][0-9]{0,4}) ")  # the length of a record in decimal digits
DIGITS = re.compile(rb"[0-9]{100}")
SPARSE = b"GNU.sparse."
PAX = (tarfile.XHDTYPE, tarfile.XGLTYPE, tarfile.SOLARIS_XHDTYPE)
LONG = (*PAX, tarfile.GNUTYPE_LONGNAME, tarfile.GNUTYPE_LONGLINK)


class BadHeader(tarfile.TarError):
    pass


class CheckedTarInfo(tarfile.TarInfo):
    """For `tarfile.open(..., tarinfo=CheckedTarInfo)`. Raises BadHeader for a header that is long,
    malformed, or of a sparse file.
    """

    def _proc_member(self, tar: Any) -> Any:  # tarfile dispatches on the type of the header here
        if self.type == tarfile.GNUTYPE_SPARSE:
            raise BadHeader("it holds a sparse file")
        if self.type in LONG and not 0 <= self.size <= LONGEST_HEADER:
            raise BadHeader(f"a header in it is too long: more than {LONGEST_HEADER:,} bytes")
        return super()._proc_member(tar)  # type: ignore[misc]

    def _proc_pax(self, tar: Any) -> Any:
        data = tar.fileobj.read(self._block(self.size))  # type: ignore[attr-defined]
        check_pax(data[: self.size])
        ReadAgain(tar, data)
        return super()._proc_pax(tar)  # type: ignore[misc]


class ReadAgain:
    """Replaces the stream of an archive for one read and returns data that was read before."""

    def __init__(self, tar: Any, data: bytes) -> None:
        self.tar, self.stream, self.data = tar, tar.fileobj, data
        tar.fileobj = self

    def read(self, size: int) -> bytes:
        self.tar.fileobj = self.stream
        return self.data

    def tell(self) -> int:
        return int(self.stream.tell())


def check_pax(data: bytes) -> None:
    """Check a sequence of records `length keyword=value\\n`."""
    if DIGITS.search(data):
        raise BadHeader("a header in it holds a number that is too long")
    at = 0
    while at < len(data):
        length = RECORD.match(data, at)
        end = at + int(length.group(1)) if length else at
        keyword, sign, _ = data[length.end() : end].partition(b"=") if length else (b"", b"", b"")
        if not keyword or not sign or end > len(data) or data[end - 1 : end] != b"\n":
            raise BadHeader("a header in it does not say how long it is")
        if keyword.startswith(SPARSE):
            raise BadHeader("it holds a sparse file")
        at = end
