"""Configuration files. A document has a kind, a name and the fields of its spec, in the same form
as in the API. Each app registers its kinds.

Faults of all documents are reported together, and then no document is applied. Applying a file
twice has no further effect.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import yaml
from django.db import transaction

from .errors import FieldError, Invalid
from .yaml_text import compose_documents, construct

HEAD = ("kind", "name")
LARGEST = 4_000_000  # characters of one file


@dataclass(frozen=True, slots=True)
class ManifestChange:
    field: str  # "max_members"; "" for the whole
    before: object
    after: object


Spec = Mapping[str, Any]


@dataclass(frozen=True)
class ManifestKind:
    """`validate` lists all faults, `diff` the changes that `apply` would make, `export` the current
    documents.
    """

    name: str
    validate: Callable[[str, Spec], Sequence[FieldError]]
    diff: Callable[[str, Spec], Sequence[ManifestChange]]
    apply: Callable[[str, Spec, str], None]  # name, spec, reason; in a transaction
    export: Callable[[], Iterable[tuple[str, Spec]]]
    # Asks outside systems for faults, before the transaction of `apply`.
    ask: Callable[[str, Spec], Sequence[FieldError]] = lambda name, spec: ()
    order: int = 0  # a kind follows the kinds that it refers to


@dataclass(frozen=True, slots=True)
class Document:
    kind: ManifestKind
    name: str
    spec: Spec
    place: str  # "pools.yaml:12"

    def at_place(self, faults: Iterable[FieldError]) -> list[FieldError]:
        head = f"{self.place}: {self.kind.name} {self.name}"
        return [FieldError(f"{head}: {e.field}", e.message, e.way_out) for e in faults]


@dataclass(frozen=True, slots=True)
class ApplyResult:
    document: Document
    changes: Sequence[ManifestChange]


_kinds: dict[str, ManifestKind] = {}


def register_kind(kind: ManifestKind) -> None:
    if kind.name in _kinds:
        raise ValueError(f"the kind {kind.name} is registered twice")
    _kinds[kind.name] = kind


def list_kinds() -> list[ManifestKind]:
    return sorted(_kinds.values(), key=lambda k: (k.order, k.name))


def read_files(files: Iterable[tuple[str, str]]) -> list[Document]:
    """Parses several files, given as (text, name). Raises Invalid with the faults of all files."""
    faults: list[FieldError] = []
    found: list[Document] = []
    for text, source in files:
        found += _read_file(text, source, faults)
    seen: dict[tuple[str, str], str] = {}
    for d in found:
        first = seen.setdefault((d.kind.name, d.name), d.place)
        if first != d.place:
            faults.append(
                FieldError(
                    d.place,
                    f"The {d.kind.name} {d.name} is already defined at {first}.",
                )
            )
    for d in found:
        faults += d.at_place(d.kind.validate(d.name, d.spec))
    if faults:
        raise Invalid(fields=faults)
    # Sorted, so that all runs lock rows in one order.
    return sorted(found, key=lambda d: (d.kind.order, d.kind.name, d.name))


def _read_file(text: str, source: str, faults: list[FieldError]) -> list[Document]:
    found: list[Document] = []
    if len(text) > LARGEST:
        faults.append(FieldError(source, f"The file is larger than {LARGEST} characters."))
        return found
    try:
        for node in compose_documents(text):
            place = f"{source}:{node.start_mark.line + 1}"
            value = construct(node)
            # "---" alone is an empty document.
            document = None if value is None else _read(value, place, faults)
            found += [document] if document else []
    except (yaml.YAMLError, RecursionError, ValueError) as error:
        faults.append(FieldError(source, f"The file is not valid YAML: {error}", "Fix the YAML."))
    return found


def diff_documents(documents: Iterable[Document]) -> list[ApplyResult]:
    return [ApplyResult(d, d.kind.diff(d.name, d.spec)) for d in documents]


def preflight_documents(documents: Iterable[Document]) -> None:
    """Raises Invalid with all faults that outside systems find. Called without a transaction."""
    faults = [fault for d in documents for fault in d.at_place(d.kind.ask(d.name, d.spec))]
    if faults:
        raise Invalid(fields=faults)


def apply_documents(documents: Sequence[Document], reason: str = "") -> list[ApplyResult]:
    """Applies all documents in one transaction."""
    with transaction.atomic():
        outcomes = []
        for d in documents:
            changes = d.kind.diff(d.name, d.spec)
            if changes:
                d.kind.apply(d.name, d.spec, reason)
            outcomes.append(ApplyResult(d, changes))
    return outcomes


def export_documents(kind: str = "", names: Sequence[str] = ()) -> str:
    """A file that `apply` accepts. Raises Invalid for unknown names."""
    if kind and kind not in _kinds:
        raise Invalid(
            f"There is no kind {kind}.",
            way_out=f"Kinds: {', '.join(k.name for k in list_kinds())}.",
        )
    found: list[dict[str, object]] = []
    for each in list_kinds():
        if kind in ("", each.name):
            found += [
                {"kind": each.name, "name": n, **s}
                for n, s in each.export()
                if not names or n in names
            ]
    if missing := set(names) - {d["name"] for d in found}:
        raise Invalid(f"There is no {kind or 'such'} {', '.join(sorted(missing))}.")
    return (
        yaml.dump_all(
            found, Dumper=yaml.SafeDumper, sort_keys=False, allow_unicode=True, explicit_start=True
        )
        if found
        else ""
    )


def _read(value: object, place: str, faults: list[FieldError]) -> Document | None:
    if not isinstance(value, dict):
        faults.append(
            FieldError(place, "A document is a mapping with kind, name and the fields of its kind.")
        )
        return None
    before = len(faults)
    kind, name = value.get("kind"), value.get("name")
    if not isinstance(kind, str) or kind not in _kinds:
        known = ", ".join(k.name for k in list_kinds())
        faults.append(FieldError(f"{place}: kind", f"{kind!r} is not a kind.", f"Kinds: {known}."))
    if not isinstance(name, str) or not name:
        faults.append(FieldError(f"{place}: name", "A document needs a name."))
    if not all(isinstance(key, str) for key in value):
        faults.append(FieldError(place, "The names of fields must be text."))
    if len(faults) > before:
        return None
    return Document(
        _kinds[str(kind)], str(name), {k: v for k, v in value.items() if k not in HEAD}, place
    )
