"""Types of values in a configuration or a body. Pure: knows mappings, not pools.

A `ValueType` parses a value, writes it back in canonical form and describes itself as JSON Schema.
`read` returns None after it has added a fault, so that the caller parses on and reports every fault
at once. `pools/config/fields.py` declares fields with these types.
"""

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import Any, ClassVar, Generic, TypeVar, overload

from pools.config.durations import format_duration, parse_duration
from pools.config.sizes import format_size, parse_size
from project.kernel.errors import LONGEST_NAME, MOST_FIELDS, FieldError, Invalid

T = TypeVar("T")
D = TypeVar("D")
N = TypeVar("N", int, float)
Schema = dict[str, Any]  # JSON Schema
Values = Mapping[str, object]

LONGEST_SHOWN = 60
MOST_KEPT = MOST_FIELDS + 1  # faults; the last one says that there are more
SURROGATE = re.compile("[\ud800-\udfff]")  # alone, which neither UTF-8 nor the database can store
MOST_UNKNOWN = 20  # unknown fields that are named: a suggestion for each takes time


@dataclass(slots=True)
class Faults:
    found: list[FieldError] = field(default_factory=list)
    count: int = 0

    def add(self, where: str, message: str, way_out: str = "") -> None:
        """Stores as many faults as an answer names, and counts the remaining faults."""
        self.count += 1
        if len(self.found) < MOST_KEPT:
            self.found.append(FieldError(where, message, way_out))
        else:
            self.found[-1] = FieldError(
                "", "Many more fields are wrong and not listed here.", "Mend these first."
            )

    def raise_if_any(self) -> None:
        if self.found:
            raise Invalid(fields=self.found)


def field_path(where: str, name: str) -> str:
    return f"{where}.{name}" if where else name


def show_value(value: object, longest: int = LONGEST_SHOWN) -> str:
    try:
        text = value if isinstance(value, str) else repr(value)
    except ValueError:  # YAML reads 0xFF...; Python refuses to write more than 4300 digits
        text = "A value with too many digits"
    text = text if len(text) <= longest else text[: longest - 1] + "…"
    return text.encode(errors="backslashreplace").decode()


def suggest_names(name: object, known: Collection[str], what: str = "Known") -> str:
    """The way out of an unknown name: the most similar known name, or all known names."""
    close = get_close_matches(show_value(name, LONGEST_NAME), sorted(known), n=1, cutoff=0.6)
    return f"Did you mean {close[0]}?" if close else f"{what}: {', '.join(sorted(known))}."


def read_mapping(
    value: object, where: str, known: Collection[str], faults: Faults, required: Iterable[str] = ()
) -> Mapping[str, Any]:
    """The known fields of a mapping. Each unknown field is a fault and is left out."""
    if not isinstance(value, Mapping):
        faults.add(
            where,
            f"This is {kind_of(value)}, not an object with fields.",
            f"Known fields: {', '.join(sorted(known))}.",
        )
        return {}
    unknown = [name for name in value if name not in known]
    for name in unknown[:MOST_UNKNOWN]:
        faults.add(
            field_path(where, show_value(name, LONGEST_NAME)),
            "No such field.",
            suggest_names(name, known, "Known fields"),
        )
    if len(unknown) > MOST_UNKNOWN:
        faults.add(
            where,
            f"{len(unknown) - MOST_UNKNOWN} more fields are not known.",
            f"Known fields: {', '.join(sorted(known))}.",
        )
    for name in required:
        if value.get(name) is None:
            faults.add(field_path(where, name), "This field is missing.", "Add it.")
    return {k: v for k, v in value.items() if k in known}


def kind_of(value: object) -> str:
    if value is None:
        return "empty"
    if isinstance(value, bool):
        return "yes or no"
    if isinstance(value, int | float):
        return "a number"
    if isinstance(value, str):
        return "text"
    if isinstance(value, list | tuple):
        return "a list"
    return "a mapping" if isinstance(value, Mapping) else type(value).__name__


class ValueType(ABC, Generic[T]):
    """The type of a field's value."""

    @abstractmethod
    def read(self, value: object, where: str, faults: Faults) -> T | None:
        """The parsed value. None: a fault was added, or a word of the type stands for None."""

    @abstractmethod
    def schema(self) -> Schema:
        """As JSON Schema (draft 2020-12), in keywords that OpenAPI 3.0 knows."""

    def write(self, value: T) -> object:
        """In canonical form; None: the field is left out."""
        return value

    @property
    def hint(self) -> str:
        """Limits and an example, for the help of a field; empty: the schema says it all."""
        return ""


@dataclass(frozen=True, slots=True)
class Integer(ValueType[int]):
    low: int
    high: int
    word: str = ""  # stands for 0

    def read(self, value: object, where: str, faults: Faults) -> int | None:
        if self.word and value == self.word:
            return 0
        way_out = f"Use one from {self.low} to {self.high}{self.word and f', or {self.word}'}."
        if isinstance(value, bool) or not isinstance(value, int):
            faults.add(where, f"{show_value(value)} is not a whole number.", way_out)
        elif not self.low <= value <= self.high:
            faults.add(where, f"{show_value(value)} is out of range.", way_out)
        else:
            return value
        return None

    def schema(self) -> Schema:
        return _or_word({"type": "integer", "minimum": self.low, "maximum": self.high}, self.word)

    def write(self, value: int) -> object:
        return self.word if self.word and value == 0 else value

    @property
    def hint(self) -> str:
        return f"From {self.low} to {self.high:,}{self.word and f', or {self.word}'}."


@dataclass(frozen=True, slots=True)
class Percent(ValueType[float]):
    def read(self, value: object, where: str, faults: Faults) -> float | None:
        if isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value <= 100:
            return value
        faults.add(
            where, f"{show_value(value)} is not a percentage.", "Use a number from 0 to 100."
        )
        return None

    def schema(self) -> Schema:
        return {"type": "number", "minimum": 0, "maximum": 100}


@dataclass(frozen=True, slots=True)
class Text(ValueType[str]):
    longest: int
    is_stripped: bool = True

    def read(self, value: object, where: str, faults: Faults) -> str | None:
        if not isinstance(value, str):
            faults.add(where, f"This is {kind_of(value)}, not text.", "Put it in quotes.")
            return None
        if len(value) > self.longest:  # with the white space around it, as the schema counts
            faults.add(
                where, f"{len(value)} characters are too many.", f"Use {self.longest} at most."
            )
            return None
        value = value.strip() if self.is_stripped else value
        if "\x00" in value:
            faults.add(where, "It contains a NUL character.", "Take it out.")
        elif SURROGATE.search(value):
            faults.add(where, "It contains half of a surrogate pair.", "Take it out.")
        else:
            return value
        return None

    def schema(self) -> Schema:
        return {"type": "string", "maxLength": self.longest}


@dataclass(frozen=True, slots=True)
class Pattern(ValueType[str]):
    """Text of a given form."""

    pattern: re.Pattern[str]
    rule: str  # the way out
    what: str = "a name"
    missing: str = "A name is missing."  # the fault of an empty text
    longest: int | None = None

    def read(self, value: object, where: str, faults: Faults) -> str | None:
        if self.missing and value == "":
            faults.add(where, self.missing, self.rule)
        elif not isinstance(value, str):
            faults.add(where, f"This is {kind_of(value)}, not text.", "Put it in quotes.")
        elif self.pattern.fullmatch(value) and (self.longest or len(value)) >= len(value):
            return value
        else:
            faults.add(where, f"{show_value(value)} is not {self.what}.", self.rule)
        return None

    def schema(self) -> Schema:
        longest = {} if self.longest is None else {"maxLength": self.longest}
        return {"type": "string", "pattern": f"^(?:{self.pattern.pattern})$", **longest}

    @property
    def hint(self) -> str:
        return self.rule


@dataclass(frozen=True, slots=True)
class Choice(ValueType[str]):
    known: Collection[str]  # a mapping holds a text for each
    what: str = "known here"

    @property
    def texts(self) -> Mapping[str, object]:
        known = self.known
        return known if isinstance(known, Mapping) else {name: name for name in known}

    def read(self, value: object, where: str, faults: Faults) -> str | None:
        if isinstance(value, str) and value in self.known:
            return value
        fault = f"{show_value(value)} is not {self.what}."
        faults.add(where, fault, suggest_names(value, self.known))
        return None

    def schema(self) -> Schema:
        return {"type": "string", "enum": list(self.known)}

    @property
    def hint(self) -> str:
        return "; ".join(map(str, self.texts.values())) + "."


@dataclass(frozen=True, slots=True)
class Flag(ValueType[bool]):
    def read(self, value: object, where: str, faults: Faults) -> bool | None:
        if isinstance(value, bool):
            return value
        faults.add(where, f"{show_value(value)} is neither true nor false.", "Use true or false.")
        return None

    def schema(self) -> Schema:
        return {"type": "boolean"}


@dataclass(frozen=True, slots=True)
class Amount(ValueType[N]):
    """A number with a unit."""

    low: N
    high: N
    word: str = ""  # stands for None
    what: ClassVar[str]
    example: ClassVar[str]
    pattern: ClassVar[str]

    @staticmethod
    @abstractmethod
    def parse(text: str, /) -> N | None: ...

    @staticmethod
    @abstractmethod
    def format(value: N, /) -> str: ...

    @property
    def limits(self) -> str:
        return f"from {self.format(self.low)} to {self.format(self.high)}"

    def read(self, value: object, where: str, faults: Faults) -> N | None:
        if self.word and value == self.word:
            return None
        found = self.parse(value) if isinstance(value, str) else None
        or_word = self.word and f", or {self.word}"
        if found is None:
            fault = f"is not {self.what}" if isinstance(value, str) else "has no unit"
            way_out = f"Write {self.what} {self.limits}, like {self.example}{or_word}."
            faults.add(where, f"{show_value(value)} {fault}.", way_out)
        elif not self.low <= found <= self.high:
            way_out = f"Use one {self.limits}{or_word}."
            faults.add(where, f"{show_value(value)} is out of range.", way_out)
        else:
            return found
        return None

    def schema(self) -> Schema:
        return _or_word({"type": "string", "pattern": self.pattern}, self.word)

    def write(self, value: N | None) -> object:
        return (self.word or None) if value is None else self.format(value)

    @property
    def hint(self) -> str:
        return f"F{self.limits[1:]}, like {self.example}{self.word and f', or {self.word}'}."


class Duration(Amount[float]):
    """A length of time in seconds."""

    what = "a length of time"
    example = "30s, 2m or 8h"
    pattern = r"^\s*([0-9]+(\.[0-9]+)?\s*(ms|d|h|m|s)\s*)+$"
    parse = staticmethod(parse_duration)
    format = staticmethod(format_duration)


class Size(Amount[int]):
    """A number of bytes."""

    what = "a size"
    example = "8MB or 2GB"
    pattern = r"^\s*[0-9]{1,9}(\.[0-9]{1,3})?\s*([kKmMgGtT]?[bB])\s*$"
    parse = staticmethod(parse_size)
    format = staticmethod(format_size)


@dataclass(frozen=True, slots=True)
class Texts(ValueType[Mapping[str, str]]):
    """Names with texts. A number is a fault, because programs write one number in several ways."""

    are: str  # "labels are"
    example: str
    many: str
    most: int
    item: ValueType[str]
    fault_of: Callable[[object], tuple[str, str] | None]  # fault and way out of a name

    def read(self, value: object, where: str, faults: Faults) -> dict[str, str] | None:
        if not isinstance(value, Mapping):
            faults.add(
                where,
                f"This is {kind_of(value)}; {self.are} names with values.",
                f"Write it like {self.example}.",
            )
            return None
        if len(value) > self.most:
            faults.add(
                where, f"{len(value)} {self.many} are too many.", f"Use {self.most} at most."
            )
            return None
        found: dict[str, str] = {}
        for name, text in value.items():
            if (fault := self.fault_of(name)) is not None:
                faults.add(field_path(where, show_value(name)), *fault)
            elif (read := self.item.read(text, field_path(where, name), faults)) is not None:
                found[name] = read
        return found

    def schema(self) -> Schema:
        return {
            "type": "object",
            "maxProperties": self.most,
            "additionalProperties": self.item.schema(),
        }

    def write(self, value: Mapping[str, str]) -> object:
        return dict(sorted(value.items()))

    @property
    def hint(self) -> str:
        return f"Like {self.example}."


@dataclass(frozen=True, slots=True)
class ListOf(ValueType[tuple[T, ...]]):
    item: ValueType[T]
    what: str  # plural
    most: int
    example: str
    least: int = 0

    def read(self, value: object, where: str, faults: Faults) -> tuple[T, ...] | None:
        if not isinstance(value, list) or len(value) < self.least:
            given = "an empty list" if value == [] else kind_of(value)
            way_out = f"Write it like {self.example}."
            faults.add(where, f"This is {given}, not a list of {self.what}.", way_out)
            return None
        if len(value) > self.most:
            fault = f"{len(value)} {self.what} are too many."
            faults.add(where, fault, f"Use {self.most} at most.")
            return None
        found = [self.item.read(each, f"{where}[{i}]", faults) for i, each in enumerate(value)]
        return tuple(each for each in found if each is not None)

    def schema(self) -> Schema:
        least = {"minItems": self.least} if self.least else {}
        return {"type": "array", "items": self.item.schema(), "maxItems": self.most, **least}

    def write(self, value: tuple[T, ...]) -> object:
        return [self.item.write(each) for each in value]

    @property
    def hint(self) -> str:
        return f"Like {self.example}."


@dataclass(frozen=True, slots=True)
class Described(ValueType[T]):
    """A value that other code parses, because it depends on other fields. `read` returns it."""

    described: Schema

    def read(self, value: Any, where: str, faults: Faults) -> T | None:
        found: T = value
        return found

    def schema(self) -> Schema:
        return self.described


def _or_word(schema: Schema, word: str) -> Schema:
    return {"anyOf": [schema, {"type": "string", "enum": [word]}]} if word else schema


LABEL = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._/-]{0,61}[A-Za-z0-9])?")
LABEL_RULE = (
    "Up to 63 letters, digits, dots, dashes, underscores and slashes; the first and last a "
    "letter or digit."
)


def _fault_of_label(name: object) -> tuple[str, str] | None:
    if isinstance(name, str) and LABEL.fullmatch(name):
        return None
    return "This is not a label's name.", LABEL_RULE


def labels(most: int = 64) -> Texts:
    return Texts("labels are", "{zone: eu-1}", "labels", most, Text(255, False), _fault_of_label)


def read_value(
    kind: ValueType[T], values: Values, where: str, name: str, faults: Faults, default: D
) -> T | D:
    """The value of one field; the default if the field is missing or has a fault."""
    value = values.get(name)
    found = None if value is None else kind.read(value, field_path(where, name), faults)
    return default if found is None else found


@overload
def read_integer(
    values: Values, where: str, name: str, faults: Faults, low: int, high: int
) -> int | None: ...
@overload
def read_integer(
    values: Values, where: str, name: str, faults: Faults, low: int, high: int, default: int
) -> int: ...
def read_integer(
    values: Values,
    where: str,
    name: str,
    faults: Faults,
    low: int,
    high: int,
    default: int | None = None,
) -> int | None:
    return read_value(Integer(low, high), values, where, name, faults, default)


def read_text(values: Values, where: str, name: str, faults: Faults, longest: int) -> str:
    return read_value(Text(longest), values, where, name, faults, "")


def read_choice(
    values: Values, where: str, name: str, faults: Faults, known: Collection[str], default: str
) -> str:
    return read_value(Choice(known), values, where, name, faults, default)


def read_flag(values: Values, where: str, name: str, faults: Faults) -> bool:
    return read_value(Flag(), values, where, name, faults, False)


def read_duration(
    values: Values, where: str, name: str, faults: Faults, low: float, high: float
) -> float | None:
    return read_value(Duration(low, high), values, where, name, faults, None)
