"""Secrets are taken out of what a task prints, wherever its output happens to be cut."""

from __future__ import annotations

import base64
import html
import json
import re
import urllib.parse
from typing import Iterable, Iterator

MASK = b"***"
SHORTEST_LINE = 6  # of a secret with several lines, each line this long is a secret, too
SHORTEST_ENCODED = 6  # shorter ones, encoded, would be found everywhere
WIDTHS = (64, 76)  # of lines of base64: openssl's, and base64's own
LONGEST_BROKEN = 8_000  # each line is looked for: not those of a larger one
BLOCK = 8  # characters of base64
SHORTEST_BLOCKS, LONGEST_BLOCKS = 20, 256  # bytes of a secret of which they are looked for
PERCENT = re.compile("%..")


def spell(values: Iterable[str]) -> list[bytes]:
    """Each secret as it may be printed: as it is, line by line, and as programs write it
    for others.
    """
    found: set[bytes] = set()
    for value in values:
        stripped = value.strip()
        plain = {value.strip("\r\n"), stripped}  # the line break after it is nothing to hide
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
    """Each once, the longest first."""
    return sorted({*found} - {b""}, key=lambda secret: (-len(secret), secret))


def as_bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")


def list_quoted(text: str) -> Iterator[str]:
    """In JSON (also as Go writes it, and inside of another JSON text), in HTML, between a
    shell's quotes.
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
    """In base64, alone and amid other bytes (`user:password`, with a line break behind), also
    broken into lines; in URLs; in hex.

    Of one that may be a token each block is looked for: a line may break it anywhere, with whatever
    stands before it, and then shows no more than of the block it cuts."""
    for encode in (base64.b64encode, base64.urlsafe_b64encode):
        yield encode(data)
        # The characters in which the bytes before have a part.
        for shift, skipped in enumerate((0, 2, 3)):
            core = encode(b"\0" * shift + data)[skipped : (shift + len(data)) * 8 // 6]
            yield core
            # No program breaks the other one.
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
    """Every byte that is part of a secret's occurrence is masked, also where occurrences overlap; a
    run of such bytes becomes one mask.

    Held back is only what may be the beginning of a secret: the longest end of the data with which
    one begins.
    """

    def __init__(self, secrets: list[bytes]) -> None:
        self.secrets = secrets
        self.held = b""
        # So much of the beginning of what is held belongs to an occurrence found already.
        self.covered = 0
        self.is_inside = False  # the last byte given out was masked

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
        """What was held back and did not become a secret."""
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
    """A whole text at once."""
    data = text.encode("utf-8", "surrogateescape")
    if not any(secret in data for secret in secrets):
        return text
    masker = Masker(secrets)
    return (masker.feed(data) + masker.end()).decode("utf-8", "replace")
