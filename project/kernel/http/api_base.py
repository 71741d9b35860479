"""Strict input and ETags for every REST resource. Errors are in `problems.py`."""

import difflib
import functools
import hashlib
import json
import re
from codecs import BOM_UTF8
from collections import Counter
from collections.abc import Mapping
from datetime import datetime
from typing import IO, Any

from rest_framework import serializers
from rest_framework.exceptions import ErrorDetail, ParseError, ValidationError
from rest_framework.fields import empty
from rest_framework.parsers import BaseParser
from rest_framework.request import Request

from .problems import EncodedBody, PreconditionFailed, PreconditionRequired

LONGEST_KEY = 120
DEEPEST = 32  # levels of nesting in a body
UNSTORABLE = re.compile("[\x00\ud800-\udfff]")  # in a text of PostgreSQL
BIGINT = (1 << 63) - 1  # the largest id
MOST_UNKNOWN = 20  # unknown fields that an error names: finding a similar name takes time


class JSONInput(BaseParser):
    """Strict JSON: no duplicate name, no NaN, no text that PostgreSQL cannot store, at most DEEPEST
    levels.
    """

    media_type = "application/json"

    def parse(
        self,
        stream: IO[bytes],
        media_type: str | None = None,
        parser_context: Mapping[str, Request] | None = None,
    ) -> Any:
        if parser_context is not None:
            refuse_encoded(parser_context["request"].META)
        return read_json(stream.read())


def refuse_encoded(meta: Mapping[str, str]) -> None:
    if meta.get("HTTP_CONTENT_ENCODING", "identity").strip().lower() not in ("", "identity"):
        raise EncodedBody


def read_json(body: bytes) -> Any:
    if body.startswith(BOM_UTF8):  # some clients send it
        body = body[len(BOM_UTF8) :]
    try:
        value = _decoder().decode(body.decode())
    except UnicodeDecodeError as error:
        raise ParseError(f"The body is not UTF-8: the byte at {error.start} is invalid.")
    except RecursionError:
        raise ParseError(f"The body is nested deeper than {DEEPEST} levels.")
    except ValueError as error:
        raise ParseError(f"The body is not JSON: {error}")
    # Most bodies need no check: only an escape yields a forbidden character, and a body has no
    # more levels than brackets.
    if b"\\u" in body or body.count(b"[") + body.count(b"{") >= DEEPEST:
        _check_texts(value, DEEPEST)
    return value


class Code(str):
    """A field error's code with its way out: DRF copies the text and the code of an error and drops
    all other attributes.
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
    """A serializer that also refuses unknown fields, read-only fields and numbers in text fields,
    and reports all faults together.
    """

    def to_internal_value(self, data: object) -> Any:
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

    def _unknown(self, data: Mapping[str, object]) -> dict[str, list[Fault]]:
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
                found[str(name)] = [Fault("Berth sets this field.", "Omit it.")]
            elif type(fields[name]) in (serializers.CharField, TextInput) and isinstance(
                data[name], int | float
            ):
                found[str(name)] = [
                    Fault("This is a number; a text is required.", "Put it in quotes.")
                ]
        return found


class StrictSerializer(Strict, serializers.Serializer[Any]):
    pass


class TextInput(serializers.CharField):
    """Text with a limit. White space around the text counts, as the schema's maxLength counts it;
    Django REST framework applies `max_length` to the trimmed text.
    """

    def run_validation(self, data: Any = empty) -> Any:
        if isinstance(data, str) and self.max_length is not None and len(data) > self.max_length:
            self.fail("max_length", max_length=self.max_length)
        return super().run_validation(data)


class AwareDateTimeField(serializers.DateTimeField):
    """ISO 8601 with an offset."""

    def enforce_timezone(self, value: datetime) -> datetime:
        if value.tzinfo is None:
            raise ValidationError(
                Fault(
                    "This time has no offset.", "Write 2026-03-29T14:00:00+01:00, or end it with Z."
                )
            )
        return super().enforce_timezone(value)


def etag_of(*parts: object) -> str:
    """A strong ETag for values such as a row's version or the digest of a specification."""
    return f'"{hashlib.sha256(repr(parts).encode()).hexdigest()[:20]}"'


def check_match(request: Request, etag: str) -> None:
    """Raises unless If-Match names `etag`. The caller must hold the row's lock."""
    given = request.headers.get("If-Match")
    if given is None:
        raise PreconditionRequired(
            "The header If-Match is required for a change of configuration.",
            way_out="Read the configuration, and send its ETag as If-Match.",
        )
    if given.strip() != "*" and etag not in re.findall(r'(?:W/)?"[^"]*"', given):
        raise PreconditionFailed(
            "The configuration has changed since you read it.",
            way_out="Read it again, apply your change to the new version, and send its ETag.",
            etag=etag,
        )


@functools.cache
def _decoder() -> json.JSONDecoder:
    return json.JSONDecoder(
        object_pairs_hook=_unique, parse_constant=_refuse_constant, parse_int=_parse_int
    )


def _unique(pairs: list[tuple[str, object]]) -> dict[str, object]:
    found = dict(pairs)
    if len(found) < len(pairs):
        counts = Counter(name for name, _ in pairs)
        twice = next(name for name, count in counts.items() if count > 1)
        raise ParseError(f"The body names {twice!r} twice.")
    return found


def _refuse_constant(text: str) -> None:
    raise ParseError(f"The body contains {text}, which is not JSON.")


def _parse_int(text: str) -> int:
    if len(text) > 20:
        raise ParseError("The body contains a number of more than 20 digits.")
    return int(text)


def _check_texts(value: object, levels: int) -> None:
    if levels == 0:
        raise ParseError(f"The body is nested deeper than {DEEPEST} levels.")
    if isinstance(value, str):
        if UNSTORABLE.search(value):
            raise ParseError(
                "A text in the body contains a NUL character or half of a surrogate pair."
            )
    elif isinstance(value, dict):
        for name, inner in value.items():
            _check_texts(name, levels - 1)
            _check_texts(inner, levels - 1)
    elif isinstance(value, list):
        for inner in value:
            _check_texts(inner, levels - 1)
