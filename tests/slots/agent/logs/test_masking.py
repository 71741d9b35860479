"""Secrets are masked in the output of a task, however the output is split."""

import base64
import itertools
import json
import re
import urllib.parse

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slots.agent.logs.masking import BLOCK, Masker, mask_text, spell

LETTERS = st.binary(max_size=40).map(lambda data: bytes(b"abc"[byte % 3] for byte in data))
SECRETS = st.lists(
    st.binary(min_size=1, max_size=6).map(lambda data: bytes(b"abc"[byte % 3] for byte in data)),
    min_size=1,
    max_size=4,
)


def mask(pieces: list[bytes], secrets: list[bytes]) -> bytes:
    masker = Masker(secrets)
    return b"".join(masker.feed(piece) for piece in pieces) + masker.end()


def naive(data: bytes, secrets: list[bytes]) -> bytes:
    """Masking by its definition: each byte of each occurrence, overlaps included."""
    covered = [
        any(
            data[at : at + len(one)] == one
            for one in secrets
            for at in range(max(0, i - len(one) + 1), i + 1)
        )
        for i in range(len(data))
    ]
    out, was = b"", False
    for byte, is_covered in zip(data, covered, strict=True):
        out += (b"" if was else b"***") if is_covered else bytes([byte])
        was = is_covered
    return out


@given(LETTERS, SECRETS, st.lists(st.integers(0, 40), max_size=6))
def test_masking_is_independent_of_chunk_boundaries(
    data: bytes, secrets: list[bytes], cuts: list[int]
) -> None:
    at = sorted({0, len(data), *(cut for cut in cuts if cut < len(data))})
    pieces = [data[begin:end] for begin, end in itertools.pairwise(at)]
    assert mask(pieces, secrets) == naive(data, secrets)


@given(LETTERS, SECRETS)
def test_masking_byte_by_byte_equals_masking_at_once(data: bytes, secrets: list[bytes]) -> None:
    assert mask([bytes([byte]) for byte in data], secrets) == naive(data, secrets)


@given(st.binary(max_size=300), SECRETS)
def test_masker_holds_back_at_most_the_possible_start_of_a_secret(
    data: bytes, secrets: list[bytes]
) -> None:
    masker = Masker(secrets)
    masker.feed(data)
    assert len(masker.held) < max(map(len, secrets))
    assert not masker.held or any(one.startswith(masker.held) for one in secrets)


def test_output_without_the_start_of_a_secret_is_passed_at_once() -> None:
    masker = Masker([b"swordfish"])
    assert masker.feed(b"password: ") == b"password: "
    assert masker.feed(b"sword") == b""
    assert masker.feed(b"play\n") == b"swordplay\n"


@pytest.mark.parametrize(
    "printed",
    [
        "tr0ub4dor&3",
        base64.b64encode(b"tr0ub4dor&3").decode(),
        "tr0ub4dor%263",
        "x=tr0ub4dor&3;tr0ub4dor&3",
    ],
)
def test_encoded_secret_is_masked(printed: str) -> None:
    masked = mask_text(printed, spell(["tr0ub4dor&3"]))
    assert "tr0ub4dor" not in masked
    assert "***" in masked


def wrapped(text: str, width: int) -> str:
    return "\n".join(text[at : at + width] for at in range(0, len(text), width))


KEY = "tr0ub4dor&3/<correct>"
LONG = "".join(f"{number:03}correct-horse" for number in range(30))


@pytest.mark.parametrize(
    "printed",
    [
        base64.b64encode(f"{KEY}\n".encode()).decode(),  # echo "$KEY" | base64
        base64.b64encode(f"git:{KEY}".encode()).decode(),  # Authorization: Basic ...
        base64.b64encode(f"user1:{KEY}:more".encode()).decode(),
        base64.urlsafe_b64encode(f"ab{KEY}c".encode()).decode(),
        urllib.parse.quote(KEY),  # with its slashes
        urllib.parse.quote_plus(KEY),
        re.sub("%..", lambda found: found[0].lower(), urllib.parse.quote(KEY, safe="")),
        # As Go writes it.
        json.dumps({"key": KEY})
        .replace("<", "\\u003c")
        .replace(">", "\\u003e")
        .replace("&", "\\u0026"),
        KEY.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;"),
        KEY.encode().hex(),
        KEY.encode().hex().upper(),
    ],
)
def test_secret_is_masked_as_programs_encode_it(printed: str) -> None:
    masked = mask_text(f"curl -H '{printed}' x", spell([KEY]))
    assert "***" in masked and masked.startswith("curl -H '") and masked.endswith("' x")
    assert len(masked) < len(printed) / 2 + 20, masked


@pytest.mark.parametrize("width", [64, 76])
def test_long_base64_secret_is_masked_across_line_breaks(width: int) -> None:
    printed = wrapped(base64.b64encode(LONG.encode()).decode(), width)
    masked = mask_text(printed, spell([LONG]))
    assert not any(line in masked for line in printed.splitlines() if len(line) == width)


@pytest.mark.parametrize("width", [64, 76])
@pytest.mark.parametrize(
    "before", ["", "x", "ab", "x-access-token:", "{'auths': {'registry.example.com': {'auth': '"]
)
def test_base64_of_a_prefixed_token_is_masked_across_line_breaks(width: int, before: str) -> None:
    """What a break cuts in two may be seen, at most the block that it cuts and the ends."""
    token = "github_pat_" + "".join(chr(97 + i * 7 % 26) + str(i % 10) for i in range(41))
    whole = base64.b64encode(f"{before}{token}".encode()).decode()
    printed = "\n".join(whole[at : at + width] for at in range(0, len(whole), width))
    masker = Masker(spell([token]))
    shown = (masker.feed(printed.encode()) + masker.end()).decode()
    seen = [text for text in re.split(r"\*+|\n", shown) if text]
    begin = len(base64.b64encode(before.encode()))
    assert sum(map(len, seen)) <= begin + 3 * BLOCK, shown
    assert all(len(text) < begin + BLOCK + 2 for text in seen), shown


def test_secret_with_a_quote_is_masked_as_shells_write_it() -> None:
    secrets = spell(["it's-secret"])
    for printed in ("+ echo 'it'\\''s-secret'", "+ echo 'it'\"'\"'s-secret'"):
        assert "secret" not in mask_text(printed, secrets)


def test_line_break_at_the_end_of_a_secret_stays() -> None:
    assert mask_text("a swordfish\nb\n", spell(["swordfish\n"])) == "a ***\nb\n"


def test_multi_line_key_is_masked_line_by_line() -> None:
    key = "-----BEGIN KEY-----\nabcdefghijkl\nmnopqrstuvwx\n-----END KEY-----\n"
    assert "abcdefghijkl" not in mask_text("  abcdefghijkl\r\n  mnopqrstuvwx\r\n", spell([key]))


def test_secret_with_quotes_and_newlines_is_masked_as_in_json() -> None:
    assert 'pa\\"ss\\nword' not in mask_text('{"key": "pa\\"ss\\nword"}', spell(['pa"ss\nword']))


def test_empty_secret_masks_no_text() -> None:
    assert spell(["", " "]) == [b" "]
    assert mask_text("abc", spell([""])) == "abc"
