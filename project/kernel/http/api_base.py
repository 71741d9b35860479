"""What every REST resource shares: strict input and ETags. Errors are in `problems.py`."""

import difflib
import functools
import hashlib
import json
import re
from codecs import BOM_UTF8
from collections.abc import Mapping
from datetime import datetime
from typing import IO, Any

from rest_framework import serializers
from rest_framework.exceptions import ErrorDetail, ParseError, ValidationError
from rest_framework.parsers import BaseParser
from rest_framework.request import Request

from .problems import EncodedBody, PreconditionFailed, PreconditionRequired, problem_handler

__all__ = ["problem_handler"]

LONGEST_KEY = 120
DEEPEST = 32  # levels of nesting in a body
BIGINT = 1 << 63
MOST_UNKNOWN = 20  # fields that are named; what was meant by each takes a while to find out


class JSONInput(BaseParser):
    """JSON as programs mean it: no name twice, no NaN, no text that the database cannot hold,
    not deeper than anybody needs.
    """

    media_type = "application/json"

    def parse(
        self,
        stream: IO[Any],
        media_type: str | None = None,
        parser_context: Mapping[str, Any] | None = None,
    ) -> Any:
        if parser_context is not None:
            refuse_encoded(parser_context["request"].META)
        return read_json(stream.read())


def refuse_encoded(meta: Mapping[str, Any]) -> None:
    if meta.get("HTTP_CONTENT_ENCODING", "identity").strip().lower() not in ("", "identity"):
        raise EncodedBody


def read_json(body: bytes) -> Any:
    if body.startswith(BOM_UTF8):  # some write it at the head of whatever they send
        body = body[len(BOM_UTF8) :]
    try:
        value = _decoder().decode(body.decode())
    except UnicodeDecodeError as error:
        raise ParseError(f"The body is not UTF-8: the byte at {error.start} is none of it.")
    except RecursionError:
        raise ParseError("The body is nested too deep.")
    except ValueError as error:
        raise ParseError(f"The body is not JSON: {error}")
    # Only an escape can bring what no text may hold, and a body is not nested deeper than it
    # has brackets.
    if b"\\u" in body or body.count(b"[") + body.count(b"{") >= DEEPEST:
        _check_texts(value, DEEPEST)
    return value


class Code(str):
    """A field error's code that brings the way out along: DRF copies text and code, and drops
    everything else.
    """

    way_out: str

    def __new__(cls, code: str, way_out: str) -> "Code":
        self = super().__new__(cls, code)
        self.way_out = way_out
        return self


class Fault(ErrorDetail):
    """A field's error with its way out, for `raise ValidationError(Fault(...))`."""

    def __new__(cls, message: str, way_out: str = "", code: str = "invalid") -> "Fault":
        return super().__new__(cls, message, Code(code, way_out))


class Strict:
    """A serializer that refuses what it does not know, by name, and numbers where texts are
    meant, together with all other faults.
    """

    def to_internal_value(self, data: Any) -> Any:
        unknown = self._unknown(data) if isinstance(data, Mapping) else {}
        try:
            value = super().to_internal_value(data)  # type: ignore[misc]
        except ValidationError as error:
            if isinstance(error.detail, dict):
                raise ValidationError({**error.detail, **unknown})
            raise
        if unknown:
            raise ValidationError(unknown)
        return value

    def _unknown(self, data: Mapping[str, Any]) -> dict[str, list[Fault]]:
        fields: Mapping[str, serializers.Field[Any, Any, Any, Any]] = self.fields  # type: ignore[attr-defined]
        writable = [name for name, field in fields.items() if not field.read_only]
        found: dict[str, list[Fault]] = {}
        for name in data:
            if len(found) == MOST_UNKNOWN:
                break
            if name not in fields:
                near = difflib.get_close_matches(str(name), writable, 1)
                found[str(name)] = [
                    Fault(
                        "This field is not known.",
                        f"Did you mean {near[0]}?" if near else f"Known: {', '.join(writable)}.",
                    )
                ]
            elif fields[name].read_only:
                found[str(name)] = [Fault("This field is set by Berth.", "Leave it out.")]
            elif type(fields[name]) is serializers.CharField and isinstance(
                data[name], int | float
            ):
                found[str(name)] = [Fault("This is a number, not a text.", "Put it in quotes.")]
        return found


class StrictSerializer(Strict, serializers.Serializer[Any]):
    pass


class AwareDateTimeField(serializers.DateTimeField):
    """ISO 8601 with an offset. A time without one could mean any of 40 moments."""

    def enforce_timezone(self, value: datetime) -> datetime:
        if value.tzinfo is None:
            raise ValidationError(
                Fault(
                    "This time has no offset.", "Write 2026-03-29T14:00:00+01:00, or end it with Z."
                )
            )
        return super().enforce_timezone(value)


def etag_of(*parts: object) -> str:
    """A strong validator of what these values stand for: a row's version, the digest
    of its spec.
    """
    return f'"{hashlib.sha256(repr(parts).encode()).hexdigest()[:20]}"'


def check_match(request: Request, etag: str, *, is_required: bool = True) -> None:
    """Nobody overwrites what they have not seen. Call it under the row's lock."""
    given = request.headers.get("If-Match")
    if given is None:
        if is_required:
            raise PreconditionRequired(
                "A change of configuration names the version it was made from.",
                way_out="Read it, and send its ETag as If-Match.",
            )
        return
    if given.strip() != "*" and etag not in re.findall(r'(?:W/)?"[^"]*"', given):
        raise PreconditionFailed(
            "It has changed since you read it.",
            way_out="Read it again, make your change in what you get, send its new ETag.",
            etag=etag,
        )


@functools.cache
def _decoder() -> json.JSONDecoder:
    return json.JSONDecoder(
        object_pairs_hook=_unique, parse_constant=_refuse_constant, parse_int=_parse_int
    )


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        seen: set[str] = set()
        twice = next(name for name, _ in pairs if name in seen or seen.add(name))  # type: ignore[func-returns-value]
        raise ParseError(f"The body names {twice!r} twice.")
    return found


def _refuse_constant(text: str) -> None:
    raise ParseError(f"The body holds {text}, which is not JSON.")


def _parse_int(text: str) -> int:
    if len(text) > 20:
        raise ParseError("The body holds a number of more than 20 digits.")
    return int(text)


def _check_texts(value: Any, levels: int) -> None:
    if levels == 0:
        raise ParseError(f"The body is nested deeper than {DEEPEST} levels.")
    if isinstance(value, str):
        if "\x00" in value or any("\ud800" <= c <= "\udfff" for c in value):
            raise ParseError(
                "A text in the body holds a NUL character or half of a surrogate pair."
            )
    elif isinstance(value, dict):
        for name, inner in value.items():
            _check_texts(name, levels - 1)
            _check_texts(inner, levels - 1)
    elif isinstance(value, list):
        for inner in value:
            _check_texts(inner, levels - 1)
