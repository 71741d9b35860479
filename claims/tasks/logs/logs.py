"""Logs of runs, stored in compressed and encrypted chunks ("pieces").

An agent repeats a piece until Berth accepts it. Berth ignores a known piece and rejects a piece
that comes too early with the number of the next one, so a log has neither gaps nor duplicates. No
event is written for a piece: a reader asks for the pieces after its last one.
"""

import json
import threading
import time
import zlib
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any

from django.db import transaction

from claims.tasks.failure_hints import way_out
from claims.tasks.logs import logs_sql
from pools.config.parsing import Faults, Integer, field_path
from project.kernel.errors import Conflict, Invalid, NotFound, TooMany, wrong_field
from project.kernel.events.log import record
from project.kernel.security.encryption import seal, unseal

CHUNK_BYTES = 64_000  # text of one piece
MOST_AT_ONCE = 50  # pieces in one call, in and out
LEVEL = 3  # of deflate: three quarters of the savings of level 9, at a tenth of the CPU time
BYTES_PER_SECOND = 4_000_000  # of one member, in each web process
BURST = 8.0  # seconds of that rate at once
MOST_PIECES = 100_000  # of one log: more than one a second for a day
SLACK = 2 * CHUNK_BYTES  # tolerated difference to the agent's count
PREFIX = 8  # bytes before the text of a piece: the number of bytes left out before the piece
TIMES = 5


@dataclass(frozen=True, slots=True)
class Piece:
    """A piece that an agent sends."""

    seq: int
    text: str
    left_out: int = 0  # bytes before this piece that the agent dropped


NO_PIECE = Piece(0, "")  # in place of a faulty one, until the faults are raised
SEQ, LEFT_OUT = Integer(0, 2**31 - 2), Integer(0, 2**53)


@dataclass(frozen=True, slots=True)
class StoredLogPiece:
    seq: int
    first_line: int  # number of the line of the first character, from 0
    lines: int  # line breaks
    text: str
    left_out: int
    at: datetime


@dataclass(frozen=True, slots=True)
class LogPage:
    chunks: list[StoredLogPiece]
    next: int  # the number of the next piece; callers of the API send it as `after`
    more: bool  # more pieces exist
    is_whole: bool  # the run is over, and the page holds the end of the log
    lines: int
    bytes: int
    left_out: int

    def as_dict(self) -> dict[str, object]:
        return asdict(self)


# Writing ------------------------------------------------------------------------------------------


def add_log(
    *, claim_id: int, generation: int, member_id: int, pieces: Sequence[Piece], most: int
) -> int:
    """Returns the number of the next piece. `most` limits the bytes of the whole log. Repeating the
    call changes nothing.
    """
    pieces = sorted(pieces, key=lambda piece: piece.seq)
    packed = {piece.seq: pack(piece) for piece in pieces}
    for _ in range(TIMES):
        state = _state_of(claim_id, generation, member_id)
        new = [piece for piece in pieces if piece.seq >= state.log_next]
        if not new:
            return state.log_next
        if [piece.seq for piece in new] != list(range(state.log_next, state.log_next + len(new))):
            raise Conflict(
                f"The next piece is number {state.log_next}.",
                code="gap",
                way_out="Send the pieces from that number on.",
                next=state.log_next,
            )
        size = sum(size_of(piece) for piece in new)
        if state.log_bytes + size > most + SLACK or state.log_next + len(new) > MOST_PIECES:
            _notify_limit(claim_id, generation, member_id, state, most)
            raise Conflict(
                f"This log has {state.log_bytes} bytes; the limit is {most}.",
                code="log_full",
                way_out="Send head and tail, with the number of bytes in between as left_out.",
                next=state.log_next,
            )
        lines = [piece.text.count("\n") for piece in new]
        left_out = sum(piece.left_out for piece in new)
        added = logs_sql.add(
            claim=claim_id,
            generation=generation,
            member=member_id,
            first=state.log_next,
            bytes=size,
            lines=sum(lines),
            left_out=left_out,
            most=most + SLACK,
            datas=[packed[piece.seq] for piece in new],
            befores=[sum(lines[:i]) for i in range(len(new))],
            each=lines,
            sizes=[size_of(piece) for piece in new],
        )
        if added is not None:
            if left_out and not added.left_out_before:
                _notify_limit(claim_id, generation, member_id, state, most)
            return added.next or 0
    raise Conflict(
        "Another call is adding to this log.",
        code="gap",
        way_out="Send the pieces again.",
        next=state.log_next,
    )


def read_pieces(body: object) -> list[Piece]:
    """Parses one piece, or several under `chunks`. Raises with all faults."""
    if not isinstance(body, dict):
        raise Invalid("The body is not an object.", way_out='Send {"seq": 0, "text": "..."}.')
    items = body.get("chunks", [body])
    if not isinstance(items, list) or not 1 <= len(items) <= MOST_AT_ONCE:
        raise wrong_field("chunks", f"This is not a list of 1 to {MOST_AT_ONCE} pieces.")
    faults = Faults()
    found = [
        _read_piece(item, f"chunks[{i}]" if "chunks" in body else "", faults)
        for i, item in enumerate(items)
    ]
    if not faults.found and len({piece.seq for piece in found}) < len(found):
        faults.add("chunks", "Two pieces have one number.", "Send each piece once.")
    faults.raise_if_any()
    return found


def _read_piece(item: object, where: str, faults: Faults) -> Piece:
    if not isinstance(item, dict):
        faults.add(where, "This is not an object.", 'Send {"seq": 0, "text": "..."}.')
        return NO_PIECE
    seq = SEQ.read(item.get("seq"), field_path(where, "seq"), faults)
    left_out = LEFT_OUT.read(item.get("left_out") or 0, field_path(where, "left_out"), faults)
    text = item.get("text")
    if not isinstance(text, str):
        faults.add(field_path(where, "text"), "This is not a text.")
    elif len(text.encode("utf-8", "replace")) > CHUNK_BYTES:
        fault = f"This is more than {CHUNK_BYTES} bytes."
        faults.add(field_path(where, "text"), fault, "Send it in several pieces.")
    elif seq is not None and left_out is not None:
        return Piece(seq, text, left_out)
    return NO_PIECE


def size_of(piece: Piece) -> int:
    return len(piece.text.encode("utf-8", "replace"))


def pack(piece: Piece) -> bytes:
    return seal(
        zlib.compress(
            piece.left_out.to_bytes(PREFIX, "big") + piece.text.encode("utf-8", "replace"), LEVEL
        )
    )


def unpack(data: bytes) -> tuple[str, int]:
    plain = zlib.decompress(unseal(data))
    return plain[PREFIX:].decode("utf-8", "replace"), int.from_bytes(plain[:PREFIX], "big")


def _state_of(claim_id: int, generation: int, member_id: int | None = None) -> logs_sql.StateRow:
    state = logs_sql.state(claim=claim_id, generation=generation)
    if state is None or (member_id is not None and state.member_id != member_id):
        raise NotFound(
            f"Claim {claim_id} has no run {generation} here.",
            code="not_started",
            way_out="Report the start of the run first.",
        )
    return state


def _notify_limit(
    claim_id: int, generation: int, member_id: int, state: logs_sql.StateRow, most: int
) -> None:
    """Records once for each run that its log is incomplete."""
    with transaction.atomic():
        if not logs_sql.note_limit(claim=claim_id, generation=generation):
            return
        record(
            "log_limit",
            pool_id=state.pool_id,
            member_id=member_id,
            claim_id=claim_id,
            generation=generation,
            reason=f"its log is longer than {most // 1_000_000 or 1} MB: head and tail are kept",
            data={"most": most},
        )


class LogRateLimit:
    """Rate limit of the log bytes of each member, in the memory of the process. Agents send
    rejected pieces again.
    """

    def __init__(self, rate: float = BYTES_PER_SECOND, burst: float = BURST) -> None:
        self.rate, self.size = rate, rate * burst
        self._levels: OrderedDict[int, tuple[float, float]] = OrderedDict()
        self._lock = threading.Lock()

    def count(self, member_id: int, size: int) -> None:
        now = time.monotonic()
        with self._lock:
            left, then = self._levels.pop(member_id, (self.size, now))
            left = min(self.size, left + (now - then) * self.rate)
            is_over = left <= 0
            self._levels[member_id] = (left if is_over else left - size, now)
            if len(self._levels) > 10_000:
                self._levels.popitem(last=False)
        if is_over:
            raise TooMany(
                f"More than {self.rate / 1e6:.0f} MB of log a second.",
                code="log_too_fast",
                retry_after=max(1.0, -left / self.rate),
                way_out="Send the pieces again after Retry-After.",
            )


log_rate_limit = LogRateLimit()


# Reading ------------------------------------------------------------------------------------------


def list_runs(claim_id: int) -> list[dict[str, Any]]:
    """The runs of a claim as the API shows them, oldest first."""
    return [_show_run(row) for row in logs_sql.runs(claim=claim_id)]


def read_log(
    claim_id: int,
    generation: int,
    *,
    after: int = -1,
    limit: int = MOST_AT_ONCE,
    tail: int | None = None,
) -> LogPage:
    """The pieces after the piece `after`, or the last `tail` lines as far as they fit into
    a page.
    """
    state = _state_of(claim_id, generation)
    limit = max(1, min(limit, MOST_AT_ONCE))
    if tail is not None:
        first = logs_sql.tail(
            claim=claim_id, generation=generation, line=max(0, state.log_lines - tail)
        )
        after = max(-1, state.log_next - limit - 1, (first or 0) - 1)
    rows = logs_sql.pieces(
        limit, claim=claim_id, generation=generation, after=after, before=state.log_next
    )
    chunks = [_chunk_of(row) for row in rows]
    following = chunks[-1].seq + 1 if chunks else max(0, min(after + 1, state.log_next))
    more = following < state.log_next
    return LogPage(
        chunks,
        following,
        more,
        state.is_over and not more,
        state.log_lines,
        state.log_bytes,
        state.log_left_out,
    )


def read_text(claim_id: int, generation: int) -> Iterator[bytes]:
    """The whole log as text, in parts. A line of its own marks each gap."""
    state = _state_of(claim_id, generation)
    after = -1
    is_line_open = False
    while rows := logs_sql.pieces(
        10, claim=claim_id, generation=generation, after=after, before=state.log_next
    ):
        for row in rows:
            chunk = _chunk_of(row)
            if chunk.left_out:
                yield (
                    f"{chr(10) if is_line_open else ''}[{chunk.left_out} bytes were "
                    "left out here]\n"
                ).encode()
            yield chunk.text.encode()
            is_line_open = not chunk.text.endswith("\n")
        after = rows[-1].seq


def _chunk_of(row: logs_sql.PiecesRow) -> StoredLogPiece:
    text, left_out = unpack(row.data)
    return StoredLogPiece(row.seq, row.first_line, row.lines, text, left_out, row.at)


def _show_run(row: logs_sql.RunsRow) -> dict[str, Any]:
    run = row._asdict()
    del run["claim_id"]
    facts: dict[str, Any] = json.loads(row.facts)
    for internal in ("files", "log_limit"):
        facts.pop(internal, None)
    log = {name: run.pop(f"log_{name}") for name in ("next", "bytes", "lines", "left_out")}
    return run | {"facts": facts, "way_out": way_out(row.code), "log": log}
