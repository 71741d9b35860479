"""Secrets in what a task prints, however it is cut."""

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
    """By definition: each byte of each occurrence, overlapping ones too."""
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
def test_cuts_change_nothing(data: bytes, secrets: list[bytes], cuts: list[int]) -> None:
    at = sorted({0, len(data), *(cut for cut in cuts if cut < len(data))})
    pieces = [data[begin:end] for begin, end in itertools.pairwise(at)]
    assert mask(pieces, secrets) == naive(data, secrets)


@given(LETTERS, SECRETS)
def test_byte_by_byte(data: bytes, secrets: list[bytes]) -> None:
    assert mask([bytes([byte]) for byte in data], secrets) == naive(data, secrets)


@given(st.binary(max_size=300), SECRETS)
def test_never_more_is_held_back_than_may_begin_a_secret(data: bytes, secrets: list[bytes]) -> None:
    masker = Masker(secrets)
    masker.feed(data)
    assert len(masker.held) < max(map(len, secrets))
    assert not masker.held or any(one.startswith(masker.held) for one in secrets)


def test_what_looks_like_nothing_comes_at_once() -> None:
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
def test_usual_spellings(printed: str) -> None:
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
def test_spellings_in_which_programs_pass_a_secret_on(printed: str) -> None:
    masked = mask_text(f"curl -H '{printed}' x", spell([KEY]))
    assert "***" in masked and masked.startswith("curl -H '") and masked.endswith("' x")
    assert len(masked) < len(printed) / 2 + 20, masked


@pytest.mark.parametrize("width", [64, 76])
def test_a_long_secret_in_base64_is_masked_though_its_lines_are_broken(width: int) -> None:
    printed = wrapped(base64.b64encode(LONG.encode()).decode(), width)
    masked = mask_text(printed, spell([LONG]))
    assert not any(line in masked for line in printed.splitlines() if len(line) == width)


@pytest.mark.parametrize("width", [64, 76])
@pytest.mark.parametrize(
    "before", ["", "x", "ab", "x-access-token:", "{'auths': {'registry.example.com': {'auth': '"]
)
def test_a_token_behind_something_else_is_masked_though_its_lines_are_broken(
    width: int, before: str
) -> None:
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


def test_a_quote_in_a_secret_as_shells_write_it() -> None:
    secrets = spell(["it's-secret"])
    for printed in ("+ echo 'it'\\''s-secret'", "+ echo 'it'\"'\"'s-secret'"):
        assert "secret" not in mask_text(printed, secrets)


def test_line_breaks_stay_where_a_secret_ends_with_one() -> None:
    assert mask_text("a swordfish\nb\n", spell(["swordfish\n"])) == "a ***\nb\n"


def test_a_key_of_several_lines_is_masked_line_by_line() -> None:
    key = "-----BEGIN KEY-----\nabcdefghijkl\nmnopqrstuvwx\n-----END KEY-----\n"
    assert "abcdefghijkl" not in mask_text("  abcdefghijkl\r\n  mnopqrstuvwx\r\n", spell([key]))


def test_quotes_and_newlines_as_json_has_them() -> None:
    assert 'pa\\"ss\\nword' not in mask_text('{"key": "pa\\"ss\\nword"}', spell(['pa"ss\nword']))


def test_an_empty_secret_masks_nothing() -> None:
    assert spell(["", " "]) == [b" "]
    assert mask_text("abc", spell([""])) == "abc"
