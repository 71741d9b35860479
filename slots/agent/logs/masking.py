"""Masks secrets in the output of a task, also across the bounds of reads."""

from __future__ import annotations

import base64
import html
import json
import re
import urllib.parse
from typing import Iterable, Iterator

MASK = b"***"
SHORTEST_LINE = 6  # characters of a line of a secret that is masked alone
SHORTEST_ENCODED = 6  # encodings of shorter secrets occur by chance
WIDTHS = (64, 76)  # characters in lines of base64, as openssl and base64 write it
LONGEST_BROKEN = 8_000  # bytes; longer secrets are not masked line by line
BLOCK = 8  # characters of base64
SHORTEST_BLOCKS, LONGEST_BLOCKS = 20, 256  # bytes of a secret that is masked block by block
PERCENT = re.compile("%..")


def spell(values: Iterable[str]) -> list[bytes]:
    """All forms in which the secrets may be printed: as they are, line by line, and encoded."""
    found: set[bytes] = set()
    for value in values:
        stripped = value.strip()
        plain = {value.strip("\r\n"), stripped}  # a line break at the end is no secret
        found.update(map(as_bytes, plain))
        lines = stripped.splitlines()
        if len(lines) > 1:
            found.update(
                as_bytes(line.strip()) for line in lines if len(line.strip()) >= SHORTEST_LINE
            )
        if len(stripped) >= SHORTEST_ENCODED:
            for text in plain:
                found.update(map(as_bytes, list_quoted(text)))
            for text in {value, *plain}:
                found.update(list_encoded(as_bytes(text)))
    return sort_secrets(found)


def sort_secrets(found: Iterable[bytes]) -> list[bytes]:
    """Distinct secrets, the longest first."""
    return sorted({*found} - {b""}, key=lambda secret: (-len(secret), secret))


def as_bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")


def list_quoted(text: str) -> Iterator[str]:
    """The text in JSON (also as Go writes it, and inside of a JSON string), HTML and shell
    quotes.
    """
    yield json.dumps(text)[1:-1]
    written = json.dumps(text, ensure_ascii=False)[1:-1]
    yield written
    yield written.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")
    yield json.dumps(written, ensure_ascii=False)[1:-1]
    yield html.escape(text)
    yield html.escape(text, quote=False)
    yield text.replace("'", "'\\''")
    yield text.replace("'", "'\"'\"'")


def list_encoded(data: bytes) -> Iterator[bytes]:
    """The bytes in base64 (also within other bytes, like `user:password`, and broken into lines),
    in URLs and in hex.

    A secret that may be a token is also masked block by block: if a line breaks it, at most the
    block at the break stays visible, independent of the bytes before it.
    """
    for encode in (base64.b64encode, base64.urlsafe_b64encode):
        yield encode(data)
        # `skipped` characters also depend on the bytes before.
        for shift, skipped in enumerate((0, 2, 3)):
            core = encode(b"\0" * shift + data)[skipped : (shift + len(data)) * 8 // 6]
            yield core
            # Programs break only the standard alphabet into lines.
            if encode is base64.b64encode and SHORTEST_BLOCKS <= len(data) <= LONGEST_BLOCKS:
                yield from (core[at : at + BLOCK] for at in range(0, len(core) - BLOCK + 1, BLOCK))
    whole = base64.b64encode(data)[: len(data) * 8 // 6]
    for width in WIDTHS if len(data) <= LONGEST_BROKEN else ():
        if len(whole) > width:
            yield from (
                line
                for at in range(0, len(whole), width)
                if len(line := whole[at : at + width]) >= SHORTEST_LINE
            )
    for safe in ("", "/", "!'()*"):
        for text in (
            urllib.parse.quote_from_bytes(data, safe),
            urllib.parse.quote_from_bytes(data, f"{safe} ").replace(" ", "+"),
        ):
            yield text.encode()
            yield PERCENT.sub(lambda code: code[0].lower(), text).encode()
    yield data.hex().encode()
    yield data.hex().upper().encode()


class Masker:
    """Masks all bytes of secrets, also of overlapping ones; adjacent bytes become one mask.

    The end of the data is held back if a secret may begin there.
    """

    def __init__(self, secrets: list[bytes]) -> None:
        self.secrets = secrets
        self.held = b""
        self.covered = 0  # first bytes of `held` that belong to a secret found before
        self.is_inside = False  # the last byte of the output was masked

    def feed(self, data: bytes) -> bytes:
        if not self.secrets:
            return data
        data = self.held + data
        runs = merge([(0, self.covered), *self.occurrences(data)])
        cut = self.possible_begin(data)
        out = self.give(data, runs, cut)
        self.held = data[cut:]
        self.covered = max([0, *(end - cut for begin, end in runs if begin <= cut < end)])
        return out

    def end(self) -> bytes:
        """The held-back bytes, after the end of the data."""
        data, self.held = self.held, b""
        out = self.give(data, merge([(0, self.covered), *self.occurrences(data)]), len(data))
        self.covered = 0
        return out

    def occurrences(self, data: bytes) -> list[tuple[int, int]]:
        found = []
        for secret in self.secrets:
            at = data.find(secret)
            while at >= 0:
                found.append((at, at + len(secret)))
                at = data.find(secret, at + 1)
        return found

    def possible_begin(self, data: bytes) -> int:
        cut = len(data)
        for secret in self.secrets:
            at = data.find(secret[:1], max(0, len(data) - len(secret) + 1))
            while 0 <= at < cut:
                if secret.startswith(data[at:]):
                    cut = at
                    break
                at = data.find(secret[:1], at + 1)
        return cut

    def give(self, data: bytes, runs: list[tuple[int, int]], cut: int) -> bytes:
        parts = []
        at = 0
        for begin, end in runs:
            if begin >= cut:
                break
            if begin > at:
                parts.append(data[at:begin])
                self.is_inside = False
            if not self.is_inside:
                parts.append(MASK)
                self.is_inside = True
            at = min(end, cut)
        if at < cut:
            parts.append(data[at:cut])
            self.is_inside = False
        return b"".join(parts)


def merge(runs: list[tuple[int, int]]) -> list[tuple[int, int]]:
    merged: list[tuple[int, int]] = []
    for begin, end in sorted(run for run in runs if run[1] > run[0]):
        if merged and begin <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(merged[-1][1], end))
        else:
            merged.append((begin, end))
    return merged


def mask_text(text: str, secrets: list[bytes]) -> str:
    """Mask a complete text."""
    data = text.encode("utf-8", "surrogateescape")
    if not any(secret in data for secret in secrets):
        return text
    masker = Masker(secrets)
    return (masker.feed(data) + masker.end()).decode("utf-8", "replace")
