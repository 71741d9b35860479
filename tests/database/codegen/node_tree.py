"""Parses PostgreSQL's text form of a parsed query (pg_node_tree)."""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TypeAlias, Union

TOKEN = re.compile(r"[{}()\[\]]|(?:\\.|[^\s{}()\[\]\\])+", re.S)
EMPTY = "<>"

Value: TypeAlias = Union[str, "Node", list["Value"]]


@dataclass
class Node:
    """A node, for example `{VAR :varno 1 ...}`."""

    kind: str
    fields: dict[str, Value] = field(default_factory=dict)

    def text(self, name: str) -> str:
        value = self.fields.get(name, EMPTY)
        return value if isinstance(value, str) else ""

    def number(self, name: str) -> int:
        return int(self.text(name))

    def flag(self, name: str) -> bool:
        return self.text(name) == "true"

    def node(self, name: str) -> "Node | None":
        value = self.fields.get(name)
        return value if isinstance(value, Node) else None

    def nodes(self, name: str) -> list["Node"]:
        value = self.fields.get(name)
        return [each for each in value if isinstance(each, Node)] if isinstance(value, list) else []

    def is_empty(self, name: str) -> bool:
        """Whether the field is missing, an empty list or an empty set."""
        return self.fields.get(name, EMPTY) in (EMPTY, [], ["b"])

    def walk(self) -> Iterator["Node"]:
        """This node and all nodes below it."""
        yield self
        for value in self.fields.values():
            yield from walk(value)


def walk(value: Value) -> Iterator[Node]:
    if isinstance(value, Node):
        yield from value.walk()
    elif isinstance(value, list):
        for each in value:
            yield from walk(each)


def parse(text: str) -> Value:
    tokens = [*TOKEN.findall(text), ""]
    value, _ = _parse_value(tokens, 0)
    return value


def _parse_value(tokens: list[str], at: int) -> tuple[Value, int]:
    current = tokens[at]
    if current == "{":
        return _parse_node(tokens, at + 1)
    if current in "([":
        items: list[Value] = []
        at += 1
        while tokens[at] not in ")]":
            item, at = _parse_value(tokens, at)
            items.append(item)
        return items, at + 1
    return current, at + 1


def _parse_node(tokens: list[str], at: int) -> tuple[Node, int]:
    node = Node(tokens[at])
    at += 1
    while tokens[at] != "}":
        name = tokens[at][1:]
        values: list[Value] = []
        at += 1
        while tokens[at] != "}" and not (tokens[at].startswith(":") and len(tokens[at]) > 1):
            value, at = _parse_value(tokens, at)
            values.append(value)
        node.fields[name] = values[0] if len(values) == 1 else values
    return node, at + 1
