"""Parse the variables of the form of a run: lines `name = value`, with values in JSON or HCL.

Bare words are text, so that `region=eu-1` needs no quotes. Numbers, true, false, null, lists and
objects keep their type.
"""

import json
import re

TOKEN = re.compile(
    r'(?P<gap>[ \t\r]+|(?:#|//)[^\n]*)|(?P<string>"(?:[^"\\\n'
    r']|\\.)*")|(?P<sign>[\[\]{},:=\n])|(?P<word>[^\s\[\]{},:="#]+)'
)
NUMBER = re.compile(r"-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?")
NUMERIC = re.compile(r"[+-]?[0-9.]*[0-9](?:[eE][+-]?\d+)?")
CONSTANTS = {"true": True, "false": False, "null": None}
DEEPEST = 50
QUOTE = 'Put text in double quotes, like "eu-1".'


class NotAValue(Exception):
    def __init__(self, line: int, message: str, way_out: str) -> None:
        super().__init__(message)
        self.line, self.message, self.way_out = line, message, way_out


def read_variables(text: str) -> tuple[dict[str, object], list[NotAValue]]:
    """Returns the variables and all faults with the numbers of their lines."""
    found: dict[str, object] = {}
    faults: list[NotAValue] = []
    at = 0
    while at < len(text):
        end = text.find("\n", at)
        end = len(text) if end < 0 else end
        line = text[at:end]
        name, sign, rest = line.partition("=")
        name = name.strip()
        number = text.count("\n", 0, at) + 1
        following = end + 1
        if line.strip() and not line.lstrip().startswith("#"):
            try:
                if not sign or not name:
                    raise NotAValue(
                        number,
                        "The line is not name=value.",
                        "Write one pair per line, like region=eu-1.",
                    )
                start = at + line.index("=") + 1 + len(rest) - len(rest.lstrip())
                if rest.strip()[:1] in ('"', "[", "{"):
                    value: object
                    value, following = _ValueReader(text, start).read_line()
                else:
                    value = read_bare(rest.strip(), number)
                if name in found:
                    raise NotAValue(number, f"{name[:40]} is given twice.", "Give each name once.")
                found[name] = value
            except NotAValue as fault:
                faults.append(fault)
        at = following
    return found, faults


def read_bare(text: str, line: int, *, is_inside: bool = False) -> object:
    """`is_inside`: inside a list or an object, text needs quotes."""
    if text in CONSTANTS:
        return CONSTANTS[text]
    if NUMBER.fullmatch(text):
        value: int | float = int(text) if text.lstrip("-").isdigit() else float(text)
        if str(value) == text:
            return value
    if NUMERIC.fullmatch(text) and (is_inside or NUMBER.fullmatch(text)):
        raise NotAValue(
            line,
            f"{text[:40]} would lose digits as a number.",
            f'Put it in quotes if it is text: "{text[:40]}".',
        )
    if is_inside:
        raise NotAValue(line, f"{text[:40]} is neither a number nor true, false or null.", QUOTE)
    return text


class _ValueReader:
    """Reads one value that begins with a quote or a bracket, over one or several lines."""

    def __init__(self, text: str, at: int) -> None:
        self.text, self.at, self.depth = text, at, 0

    @property
    def line(self) -> int:
        return self.text.count("\n", 0, min(self.at, len(self.text))) + 1

    def read_line(self) -> tuple[object, int]:
        """The value, and the start of the next line. Raises if text follows the value."""
        value = self.read_value()
        _, text = self.read_token(keeps_newlines=True)
        if text not in ("", "\n"):
            raise NotAValue(
                self.line,
                f"Unexpected text after the value: {text[:40]}.",
                "Write each variable on a line of its own.",
            )
        return value, self.at

    def read_token(self, *, keeps_newlines: bool = False) -> tuple[str, str]:
        """Kind and text of the next token; empty at the end."""
        while self.at < len(self.text):
            match = TOKEN.match(self.text, self.at)
            if match is None:
                raise NotAValue(self.line, "A quote is not closed.", QUOTE)
            self.at = match.end()
            kind = str(match.lastgroup)
            if kind != "gap" and (keeps_newlines or match[0] != "\n"):
                return kind, match[0]
        return "", ""

    def peek(self) -> str:
        at = self.at
        _, text = self.read_token()
        self.at = at
        return text

    def read_value(self) -> object:
        line, (kind, text) = self.line, self.read_token()
        if kind == "string":
            return self.read_string(text)
        if kind == "word":
            return read_bare(text, self.line, is_inside=True)
        if text not in ("[", "{"):
            raise NotAValue(self.line, "A value is missing.", "Write a value, or remove the comma.")
        self.depth += 1
        if self.depth > DEEPEST:
            raise NotAValue(
                line, "The value is nested too deep.", "Put it into a file of the source."
            )
        value = self.read_list(line) if text == "[" else self.read_object(line)
        self.depth -= 1
        return value

    def read_string(self, text: str) -> str:
        try:
            return str(json.loads(text))
        except ValueError:
            raise NotAValue(
                self.line,
                "A string has an unknown escape.",
                "Escape as JSON does: \\n, \\t, \\u00e9.",
            ) from None

    def read_list(self, line: int) -> list[object]:
        found: list[object] = []
        while self.peek() != "]":
            self.refuse_end("[", line)
            found.append(self.read_value())
            if self.peek() == ",":
                self.read_token()
            elif self.peek() != "]":
                self.refuse_end("[", line)
                raise NotAValue(self.line, "A comma is missing in a list.", "Write it like [1, 2].")
        self.read_token()
        return found

    def read_object(self, line: int) -> dict[str, object]:
        found: dict[str, object] = {}
        while self.peek() != "}":
            self.refuse_end("{", line)
            kind, text = self.read_token()
            if kind not in ("string", "word"):
                raise NotAValue(
                    self.line, "A name is missing in an object.", "Write it like {size = 3}."
                )
            name = self.read_string(text) if kind == "string" else text
            if self.read_token()[1] not in ("=", ":"):
                raise NotAValue(
                    self.line, f"{name[:40]} has no value.", "Write it like {size = 3}."
                )
            if name in found:
                raise NotAValue(
                    self.line, f"{name[:40]} is given twice in an object.", "Give each name once."
                )
            found[name] = self.read_value()
            if self.peek() == ",":
                self.read_token()
        self.read_token()
        return found

    def refuse_end(self, bracket: str, line: int) -> None:
        if not self.peek():
            raise NotAValue(line, f"The {bracket} of this value is not closed.", "Close it.")
