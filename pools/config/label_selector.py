"""Selectors of members by labels. Pure; the function `selects` of the database decides the same.

{"zone": "eu-1"}                    the label has this value
{"zone": {"in": ["eu-1", "eu-2"]}}  one of these values
{"tier": {"not_in": ["old"]}}       another value, or the label is missing
{"gpu": {"exists": true}}           the member has the label; false: it has not
"""

from collections.abc import Mapping
from dataclasses import dataclass

from pools.config.fields import Fields, fields_of, option
from pools.config.parsing import Faults, Flag, ListOf, Schema, Text, field_path, labels

MOST_VALUES = 64
VALUE = Text(255, False)
VALUES = ListOf(VALUE, "values", MOST_VALUES, "[eu-1, eu-2]", least=1)
# A text, or an object with in, not_in or exists.
LabelTerm = str | Mapping[str, object]


@dataclass(frozen=True, slots=True)
class LabelRule:
    """Conditions on one label; all of them hold."""

    among: tuple[str, ...] | None = option(VALUES, None, "The label has one of these.", path="in")
    not_in: tuple[str, ...] | None = option(VALUES, None, "The label has none of these.")
    exists: bool | None = option(Flag(), None, "Whether the member has the label.")

    def as_config(self) -> dict[str, object]:
        found = {"in": self.among, "not_in": self.not_in, "exists": self.exists}
        return {
            name: list(value) if isinstance(value, tuple) else value
            for name, value in found.items()
            if value is not None
        }


RULE_FIELDS: Fields = fields_of(LabelRule)


def selector_schema(most: int) -> Schema:
    rule = RULE_FIELDS.schema() | {"minProperties": 1}
    return labels(most).schema() | {"additionalProperties": {"anyOf": [VALUE.schema(), rule]}}


def read_selector(
    value: object, where: str, faults: Faults, most: int
) -> tuple[tuple[str, str | LabelRule], ...]:
    """The terms of a selector in the order of their labels."""
    if not isinstance(value, Mapping):
        plain = labels(most).read(value, where, faults)
        return tuple(sorted((plain or {}).items()))
    rules = {name: each for name, each in value.items() if isinstance(each, Mapping)}
    # The names are checked with those of plain values.
    texts = labels(most).read({**value, **dict.fromkeys(rules, "-")}, where, faults) or {}
    found: dict[str, str | LabelRule] = dict(texts)
    for name, each in rules.items():
        if name in texts:
            place = field_path(where, name)
            given = RULE_FIELDS.read(each, place, faults)
            if not each:
                faults.add(place, "This condition is empty.", "Use in, not_in or exists.")
            found[name] = LabelRule(**given)
    return tuple(sorted(found.items(), key=lambda term: term[0]))


def write_selector(terms: tuple[tuple[str, str | LabelRule], ...]) -> dict[str, LabelTerm]:
    return {name: term if isinstance(term, str) else term.as_config() for name, term in terms}


def matches(selector: Mapping[str, LabelTerm], own: Mapping[str, str]) -> bool:
    """Whether a member with the labels `own` is selected."""
    return all(_holds(term, own.get(name)) for name, term in selector.items())


def _holds(term: LabelTerm, value: str | None) -> bool:
    if isinstance(term, str):
        return value == term
    among, others, exists = term.get("in"), term.get("not_in"), term.get("exists")
    return (
        (not isinstance(among, list) or value in among)
        and (not isinstance(others, list) or value not in others)
        and (exists is None or exists == (value is not None))
    )


def describe_selector(selector: Mapping[str, LabelTerm]) -> str:
    """Like `gpu, tier not in (old), zone=eu-1`."""
    return ", ".join(_describe(name, term) for name, term in sorted(selector.items()))


def _describe(name: str, term: LabelTerm) -> str:
    if isinstance(term, str):
        return f"{name}={term}"
    parts = [
        f"{name} {word} ({', '.join(values)})"
        for key, word in (("in", "in"), ("not_in", "not in"))
        if isinstance(values := term.get(key), list)
    ]
    if (exists := term.get("exists")) is not None:
        parts.append(name if exists else f"no {name}")
    return ", ".join(parts)
