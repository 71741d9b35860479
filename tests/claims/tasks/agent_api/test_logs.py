"""Log chunks are stored once, in order and sealed, and are read by page or whole."""

import random
import threading
from typing import Any

import pytest
from django.db import connection

from claims.allocation.claim_view import ClaimView
from claims.models import LogChunk, Run
from claims.tasks.logs import logs
from claims.tasks.logs.logs import (
    CHUNK_BYTES,
    LogRateLimit,
    Piece,
    add_log,
    list_runs,
    read_log,
    read_pieces,
    read_text,
)
from pools.models import Pool
from project.kernel.errors import Conflict, Invalid, NotFound, TooMany
from project.kernel.models import Event
from tests.api.conftest import Callers
from tests.claims.tasks.agent_api.conftest import make_agents, make_claim

pytestmark = pytest.mark.django_db
MOST = 8_000_000


def add(claim: ClaimView, *pieces: Piece, most: int = MOST, member: int = 0) -> int:
    return add_log(
        claim_id=claim.id,
        generation=claim.generation,
        member_id=member or claim.slots[0].member_id,
        pieces=pieces,
        most=most,
    )


def whole(claim: ClaimView) -> str:
    return b"".join(read_text(claim.id, claim.generation)).decode()


def test_log_chunks_are_stored_once_and_in_order(claim: ClaimView) -> None:
    assert add(claim, Piece(0, "one\ntw")) == 1
    assert add(claim, Piece(0, "one\ntw")) == 1, "again: left aside"
    assert add(claim, Piece(0, "one\ntw"), Piece(1, "o\nthree\n")) == 2
    with pytest.raises(Conflict) as caught:
        add(claim, Piece(4, "too early"))
    assert (caught.value.code, caught.value.data["next"]) == ("gap", 2)
    assert add(claim, Piece(3, "five\n"), Piece(2, "four\n")) == 4, (
        "in whatever order they stand in a call"
    )
    assert whole(claim) == "one\ntwo\nthree\nfour\nfive\n"
    run = Run.objects.get(claim_id=claim.id)
    assert (run.log_next, run.log_lines, run.log_bytes) == (
        4,
        5,
        len("one\ntwo\nthree\nfour\nfive\n"),
    )


def test_chunks_are_numbered_by_the_line_breaks_before_them(claim: ClaimView) -> None:
    add(claim, Piece(0, "a\nb"), Piece(1, "b\n"), Piece(2, "c\nd\n"))
    chunks = read_log(claim.id, claim.generation).chunks
    assert [(c.seq, c.first_line, c.lines) for c in chunks] == [(0, 0, 1), (1, 1, 1), (2, 2, 2)]


def test_a_log_is_read_by_pages(claim: ClaimView) -> None:
    for n in range(7):
        add(claim, Piece(n, f"line {n}\n"))
    page = read_log(claim.id, claim.generation, limit=3)
    assert ([c.seq for c in page.chunks], page.next, page.more, page.is_whole) == (
        [0, 1, 2],
        3,
        True,
        False,
    )
    page = read_log(claim.id, claim.generation, after=5)
    assert ([c.seq for c in page.chunks], page.next, page.more, page.is_whole) == (
        [6],
        7,
        False,
        False,
    )
    assert read_log(claim.id, claim.generation, after=6).chunks == []
    assert [c.seq for c in read_log(claim.id, claim.generation, tail=2).chunks] == [5, 6]
    assert [c.seq for c in read_log(claim.id, claim.generation, tail=100).chunks] == list(range(7))
    Run.objects.filter(claim_id=claim.id).update(ended_at="2026-01-01T00:00:00Z")
    assert read_log(claim.id, claim.generation, after=6).is_whole
    with pytest.raises(NotFound):
        read_log(claim.id, claim.generation + 1)


def test_log_text_is_not_readable_in_the_database(claim: ClaimView) -> None:
    add(claim, Piece(0, "the password is hunter2\n"))
    with connection.cursor() as cursor:
        cursor.execute("SELECT data FROM claims_logchunk")
        assert b"hunter2" not in bytes(cursor.fetchone()[0])
        cursor.execute("SELECT string_agg(e::text, '') FROM kernel_event e")
        assert "hunter2" not in cursor.fetchone()[0]
    assert "hunter2" in whole(claim)


def test_omitted_log_bytes_are_reported_in_their_place(claim: ClaimView) -> None:
    add(claim, Piece(0, "head"), Piece(1, "tail\n", left_out=990_000_000))
    assert whole(claim) == "head\n[990000000 bytes were left out here]\ntail\n"
    page = read_log(claim.id, claim.generation)
    assert [c.left_out for c in page.chunks] == [0, 990_000_000] and page.left_out == 990_000_000
    add(claim, Piece(2, "more\n", left_out=5))
    assert Event.objects.filter(verb="log_limit", claim_id=claim.id).count() == 1, "once a run"


def test_a_log_beyond_its_limit_is_refused(claim: ClaimView) -> None:
    add(claim, Piece(0, "x" * 60_000), most=1000)
    add(claim, Piece(1, "x" * 60_000), most=1000)
    for _ in range(2):
        with pytest.raises(Conflict) as caught:
            add(claim, Piece(2, "x" * 60_000), most=1000)
        assert caught.value.code == "log_full"
    assert LogChunk.objects.count() == 2


def test_only_the_member_of_a_started_run_adds_to_its_log(claim: ClaimView, pool: Pool) -> None:
    other = make_agents("other").members.get()
    for wrong in ({"member": other.pk}, {}):
        where = claim if wrong else make_claim(pool, is_started=False)
        with pytest.raises(NotFound) as caught:
            add(where, Piece(0, "lies\n"), **wrong)
        assert caught.value.code == "not_started"
    assert not LogChunk.objects.exists()


@pytest.mark.parametrize(
    "body",
    [
        [], {}, {"seq": 0}, {"seq": -1, "text": "x"}, {"seq": True, "text": "x"},
        {"seq": 0, "text": 5}, {"seq": 2**40, "text": "x"},
        {"seq": 0, "text": "x" * (CHUNK_BYTES + 1)},
        {"seq": 0, "text": "ü" * (CHUNK_BYTES // 2 + 1)}, {"chunks": []},
        {"chunks": [{"seq": 0, "text": "a"}] * 2}, {"chunks": [5]},
        {"seq": 0, "text": "x", "left_out": -1},
    ],
)  # fmt: skip
def test_malformed_log_chunks_are_refused(body: Any) -> None:
    with pytest.raises(Invalid):
        read_pieces(body)


def test_any_text_is_accepted_in_a_log(claim: ClaimView) -> None:
    odd = "nul \x00, bell \x07, ü, \U0001f600, \x1b[31mred\x1b[0m, half \ud800\n"
    assert add(claim, *read_pieces({"seq": 0, "text": odd})) == 1
    assert whole(claim) == odd.replace("\ud800", "?")


def test_a_member_over_its_log_rate_is_refused() -> None:
    flow = LogRateLimit(rate=1000, burst=2)
    flow.count(1, 1500)
    flow.count(1, 1500)
    with pytest.raises(TooMany) as caught:
        flow.count(1, 1)
    assert caught.value.code == "log_too_fast"
    flow.count(2, 1500)


def test_runs_are_listed_with_their_public_facts(claim: ClaimView) -> None:
    add(claim, Piece(0, "a\n"))
    Run.objects.filter(claim_id=claim.id).update(
        facts={"binary": "tofu", "files": {"plan": {"name": "plan/ab/1-2.x"}}}
    )
    (run,) = list_runs(claim.id)
    assert (run["step"], run["member"], run["log"]["lines"]) == ("plan", "a", 1)
    assert run["facts"] == {"binary": "tofu"}


@pytest.mark.django_db(transaction=True)
def test_concurrent_log_calls_neither_lose_nor_double_chunks() -> None:
    claim = make_claim(make_agents())
    texts = [f"line {n}\n" for n in range(40)]
    failed: list[BaseException] = []

    def send(seed: int) -> None:
        draw = random.Random(seed)
        at = 0
        try:
            while at < len(texts):
                start = max(0, at - draw.randint(0, 3))
                try:
                    at = add(
                        claim,
                        *[
                            Piece(n, texts[n])
                            for n in range(start, min(start + draw.randint(1, 6), len(texts)))
                        ],
                    )
                except Conflict as error:
                    at = error.data["next"]
        except BaseException as error:
            failed.append(error)
        finally:
            connection.close()

    threads = [threading.Thread(target=send, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert not failed
    assert whole(claim) == "".join(texts)


def test_the_number_of_log_chunks_is_limited(
    claim: ClaimView, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logs, "MOST_PIECES", 3)
    add(claim, Piece(0, "a"), Piece(1, "b"))
    with pytest.raises(Conflict) as caught:
        add(claim, Piece(2, "c"), Piece(3, "d"))
    assert (caught.value.code, caught.value.data["next"]) == ("log_full", 2)
    add(claim, Piece(2, "c"))
    for _ in range(5):
        with pytest.raises(Conflict):
            add(claim, Piece(3, "d"))
    assert whole(claim) == "abc"
    assert Event.objects.filter(verb="log_limit", claim_id=claim.id).count() == 1, (
        "an agent that tries and tries writes one event"
    )
    assert "log_limit" not in list_runs(claim.id)[0]["facts"]


def test_a_reader_that_starts_at_zero_gets_the_first_chunk(
    claim: ClaimView, caller: Callers
) -> None:
    for n in range(3):
        add(claim, Piece(n, f"line {n}\n"))
    reader, path = caller("admin"), f"claims/{claim.id}/runs/{claim.generation}/log/"
    seen, known = [], 0
    while (page := reader.get(f"{path}?after={known}&limit=2").body)["chunks"]:
        seen += [chunk["seq"] for chunk in page["chunks"]]
        known = page["next"]
    assert (seen, known) == ([0, 1, 2], 3)
    assert [chunk["seq"] for chunk in reader.get(path).body["chunks"]] == [0, 1, 2]
    assert reader.get(f"{path}?after=-1").status == 400
