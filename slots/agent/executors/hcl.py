"""Reads the literals of variables from Terraform's language: blocks, assignments, strings and
numbers.

Other expressions are skipped. A malformed file yields the literals before the fault.
"""

from __future__ import annotations

import re
from typing import Iterator, NamedTuple

NAME, TEXT, NUMBER, SIGN, LINE = "name", "text", "number", "sign", "line"
TOKEN = re.compile(
    r"""(?P<blank>[ \t\r]+|\#[^\n]*|//[^\n]*|/\*.*?\*/)
    |(?P<line>\n)
    |(?P<heredoc><<-?[A-Za-z_][\w.-]*[ \t\r]*\n)
    |(?P<name>[A-Za-z_][\w-]*)
    |(?P<number>-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?)
    |(?P<quote>")
    |(?P<sign>.)""",
    re.VERBOSE | re.DOTALL,
)
PART = re.compile(
    r'[^"\\$%\n]+|\\u[0-9a-fA-F]{4}|\\U[0-9a-fA-F]{8}|\\.|\$\$\{|%%\{|\$\{|%\{|["$%\n]', re.DOTALL
)
ESCAPES = {
    "\\n": "\n",
    "\\r": "\r",
    "\\t": "\t",
    '\\"': '"',
    "\\\\": "\\",
    "$${": "${",
    "%%{": "%{",
}
OPENING, CLOSING = "{[(", "}])"


class HclToken(NamedTuple):
    kind: str
    text: str


class Block(NamedTuple):
    """A block like `variable "name" { ... }`."""

    kind: str
    label: str
    values: dict[str, list[HclToken]]  # assigned expressions by name


def read_variables(text: str) -> list[Block]:
    """The `variable` blocks of a configuration file."""
    tokens = list(tokenize(text))
    found = []
    for at, token in enumerate(tokens):
        if (
            token == (NAME, "variable")
            and at + 2 < len(tokens)
            and tokens[at + 2] == (SIGN, "{")
            and tokens[at + 1].kind in (NAME, TEXT)
        ):
            inside = until_closed(tokens, at + 2)
            found.append(Block("variable", tokens[at + 1].text, read_assignments(inside)))
    return found


def read_assignments(tokens: list[HclToken]) -> dict[str, list[HclToken]]:
    """The assignments `name = expression` at the top level of these tokens."""
    found: dict[str, list[HclToken]] = {}
    at = 0
    while at < len(tokens):
        if (
            tokens[at].kind in (NAME, TEXT)
            and at + 1 < len(tokens)
            and tokens[at + 1] == (SIGN, "=")
        ):
            end = end_of_line(tokens, at + 2)
            found[tokens[at].text] = tokens[at + 2 : end]
            at = end
        else:
            at = end_of_line(tokens, at) if tokens[at].kind != LINE else at + 1
    return found


def list_literals(tokens: list[HclToken]) -> list[str]:
    return [token.text for token in tokens if token.kind in (TEXT, NUMBER)]


def until_closed(tokens: list[HclToken], opening: int) -> list[HclToken]:
    depth = 0
    for at in range(opening, len(tokens)):
        depth += change_of_depth(tokens[at])
        if depth == 0:
            return tokens[opening + 1 : at]
    return tokens[opening + 1 :]


def end_of_line(tokens: list[HclToken], at: int) -> int:
    """The position behind the expression at `at`. A line break within brackets does not end it."""
    depth = 0
    while at < len(tokens):
        depth += change_of_depth(tokens[at])
        if depth < 0 or (depth == 0 and tokens[at].kind == LINE):
            return at + 1
        at += 1
    return at


def change_of_depth(token: HclToken) -> int:
    return 0 if token.kind != SIGN else (token.text in OPENING) - (token.text in CLOSING)


def tokenize(text: str) -> Iterator[HclToken]:
    at = 0
    while at < len(text):
        match = TOKEN.match(text, at)
        assert match is not None  # the last alternative matches any character
        at = match.end()
        kind = str(match.lastgroup)
        if kind == "quote":
            value, at = read_text(text, at)
            yield HclToken(TEXT, value)
        elif kind == "heredoc":
            value, at = read_heredoc(text, at, match.group().strip("<-\r\n\t "))
            yield HclToken(TEXT, value)
            yield HclToken(LINE, "\n")
        elif kind != "blank":
            yield HclToken(kind, match.group())


def read_text(text: str, at: int) -> tuple[str, int]:
    """The string up to its closing quote, without templates, and the position behind it."""
    parts = []
    while at < len(text):
        match = PART.match(text, at)
        if match is None:  # a backslash at the end of the file
            break
        part, at = match.group(), match.end()
        if part in ('"', "\n"):
            break
        if part in ("${", "%{"):
            at = skip_template(text, at)
        elif part[:2] in ("\\u", "\\U"):
            code = int(part[2:], 16)
            parts.append(chr(code) if code < 0x110000 else "")
        else:
            parts.append(ESCAPES.get(part, part))
    return "".join(parts), at


def skip_template(text: str, at: int) -> int:
    """The position behind the brace that closes a template. Strings in it may contain braces."""
    depth = 1
    while at < len(text) and depth:
        match = TOKEN.match(text, at)
        assert match is not None
        at = match.end()
        if match.lastgroup == "quote":
            _, at = read_text(text, at)
        elif match.lastgroup == "sign":
            depth += (match.group() == "{") - (match.group() == "}")
    return at


def read_heredoc(text: str, at: int, word: str) -> tuple[str, int]:
    """The lines of a heredoc without indentation, and the position behind it."""
    lines = []
    while at < len(text):
        end = text.find("\n", at)
        end = len(text) if end < 0 else end
        line, at = text[at:end].strip(), end + 1
        if line == word:
            break
        lines.append(line)
    return "\n".join(lines), at
