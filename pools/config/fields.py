"""Fields of a configuration, declared once. Pure.

A field has a path, a type with its limits, a default and one sentence of description. The parser,
the canonical form, the JSON Schema, the OpenAPI component and the form of a pool derive from the
declaration. A dataclass declares its fields with `option` and `required`:

    @dataclass(frozen=True, slots=True)
    class RollSpec:
        policy: str = option(Choice(POLICIES), "idle", "When outdated members are renewed.")

docs/architecture.md says why no library does this.
"""

import dataclasses
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from operator import attrgetter
from typing import Any, TypeVar

from pools.config.parsing import Faults, Schema, ValueType, field_path, read_mapping

T = TypeVar("T")
D = TypeVar("D")
Reader = Callable[[Any, str, Faults], object]
KEY = "option"  # of the metadata of a dataclass field
EMPTY: tuple[object, ...] = (None, "", [], {})


@dataclass(frozen=True, slots=True)
class Option:
    kind: ValueType[Any]
    text: str  # one sentence
    default: object = None
    is_required: bool = False
    path: str = ""  # in the configuration, like git.hosts; empty: the name of the attribute
    attribute: str = ""  # of the object, like pace.up; empty: the path

    @property
    def help(self) -> str:
        """The description with limits and an example."""
        return f"{self.text} {self.kind.hint}".strip()

    def write(self, value: object) -> object:
        """In canonical form. A type without a word has no form for None."""
        return None if value is None and not hasattr(self.kind, "word") else self.kind.write(value)

    def schema(self) -> Schema:
        schema = self.kind.schema() | ({"description": self.help} if self.help else {})
        default = None if self.is_required else self.write(self.default)
        if default not in EMPTY and not isinstance(default, dict):
            schema["default"] = default
        return schema


def option(kind: ValueType[T], default: D, text: str, path: str = "") -> T | D:
    """A field of a dataclass that a configuration may leave out."""
    metadata = {KEY: Option(kind, text, default, path=path)}
    if isinstance(default, dict):
        made: T | D = dataclasses.field(default_factory=lambda: default, metadata=metadata)
    else:
        made = dataclasses.field(default=default, metadata=metadata)
    return made


def required(kind: ValueType[T], text: str) -> T:
    """A field of a dataclass that a configuration must have."""
    made: T = dataclasses.field(metadata={KEY: Option(kind, text, is_required=True)})
    return made


class Fields(dict[str, Option]):
    """The fields of one object by their path, in the order of the canonical form. `tree` holds
    them by the first name of their path.
    """

    def __init__(self, options: Mapping[str, Option]) -> None:
        super().__init__()
        for path, each in options.items():
            self[path] = dataclasses.replace(each, attribute=each.attribute or path)
        self.tree: dict[str, Option | Fields] = {}
        groups: dict[str, dict[str, Option]] = {}
        for path, each in self.items():
            name, _, rest = path.partition(".")
            self.tree[name] = each  # of a group: replaced below, at the same position
            if rest:
                groups.setdefault(name, {})[rest] = each
        self.tree |= {name: Fields(group) for name, group in groups.items()}

    def find(self, path: str) -> Option:
        """The field of a path that may lead into other objects, like approval.needed."""
        if path in self:
            return self[path]
        name, _, rest = path.partition(".")
        entry = self.tree[name]
        fields = entry if isinstance(entry, Fields) else getattr(entry.kind, "fields", None)
        if fields is None:
            raise KeyError(path)
        found: Option = fields.find(rest)
        return found

    def read(
        self, value: object, where: str, faults: Faults, using: Mapping[str, Reader] | None = None
    ) -> dict[str, Any]:
        """The values of the fields that are given, by attribute. A reader of `using` parses the
        field of its path in place of the field's type, also if the field is missing.
        """
        return self._read(value, where, faults, using or {}, "")

    def _read(
        self, value: object, where: str, faults: Faults, using: Mapping[str, Reader], prefix: str
    ) -> dict[str, Any]:
        given = read_mapping(value, where, self.tree, faults)
        found: dict[str, Any] = {}
        for name, entry in self.tree.items():
            inside, place, path = given.get(name), field_path(where, name), field_path(prefix, name)
            before = faults.count
            if isinstance(entry, Fields):
                found |= entry._read({} if inside is None else inside, place, faults, using, path)
            elif path in using:
                found[entry.attribute] = using[path](inside, place, faults)
            elif inside is not None:
                read = entry.kind.read(inside, place, faults)
                if faults.count == before:
                    found[entry.attribute] = read
            elif entry.is_required and isinstance(value, Mapping):
                faults.add(place, "This field is missing.", f"Add it. {entry.text}".strip())
        return found

    def write(self, spec: object) -> dict[str, Any]:
        """The fields of a spec in canonical form, without empty values and default objects."""
        return self._write(lambda attribute: attrgetter(attribute)(spec))

    def write_given(self, values: Mapping[str, object]) -> dict[str, Any]:
        """The same for the result of `read`."""
        return self._write(values.get)

    def _write(self, get: Callable[[str], object]) -> dict[str, Any]:
        config: dict[str, Any] = {}
        for name, entry in self.tree.items():
            if isinstance(entry, Fields):
                written: object = entry._write(get)
            else:
                value = get(entry.attribute)
                is_usual = isinstance(entry.kind, Object) and value == entry.default
                written = None if is_usual else entry.write(value)
            if written not in EMPTY:
                config[name] = written
        return config

    def schema(self) -> Schema:
        needed = [name for name, entry in self.tree.items() if getattr(entry, "is_required", False)]
        return {
            "type": "object",
            "additionalProperties": False,
            "properties": {name: entry.schema() for name, entry in self.tree.items()},
        } | ({"required": needed} if needed else {})


def fields_of(spec: Any) -> Fields:
    """The fields that a dataclass declares."""
    found: dict[str, Option] = {}
    for each in dataclasses.fields(spec):
        declared: Option | None = each.metadata.get(KEY)
        if declared is not None:
            made = dataclasses.replace(declared, attribute=each.name)
            found[declared.path or each.name] = made
    return Fields(found)


@dataclass(slots=True)
class Object(ValueType[T]):
    """An object with the fields of a dataclass."""

    spec: type[T]
    short: str = ""  # the field that a text in place of the object means
    # Checks rules across fields and sets defaults that depend on other fields. Gets the spec, the
    # attributes that are given, the place and the faults.
    finish: Callable[[T, Collection[str], str, Faults], T] | None = None
    fields: Fields = dataclasses.field(init=False)

    def __post_init__(self) -> None:
        self.fields = fields_of(self.spec)

    def read(self, value: object, where: str, faults: Faults) -> T | None:
        given = {self.short: value} if self.short and isinstance(value, str) else value
        found = self.fields.read(given, where, faults)
        if any(each.is_required and each.attribute not in found for each in self.fields.values()):
            return None
        build: Callable[..., T] = self.spec
        spec = build(**found)
        return spec if self.finish is None else self.finish(spec, found, where, faults)

    def write(self, value: T | None) -> object:
        return None if value is None else self.fields.write(value)

    def schema(self) -> Schema:
        schema = self.fields.schema()
        if not self.short:
            return schema
        return {"anyOf": [self.fields[self.short].kind.schema(), schema]}
