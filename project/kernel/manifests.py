"""Configuration as files: a document names its kind and its name, the other fields are its spec, in
the form that the API takes, too. Each app registers the kinds it knows.

All faults of all documents are told at once, and then nothing is changed. Applying the same file
again changes nothing.
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
    field: str  # "max_members"; "" is the whole
    before: Any
    after: Any


Spec = Mapping[str, Any]


@dataclass(frozen=True)
class ManifestKind:
    """`validate` lists every fault, `diff` what applying would change (nothing: []), `apply`
    does it, `export` gives what is there.
    """

    name: str
    validate: Callable[[str, Spec], Sequence[FieldError]]
    diff: Callable[[str, Spec], Sequence[ManifestChange]]
    apply: Callable[[str, Spec, str], None]  # name, spec, reason; in a transaction
    export: Callable[[], Iterable[tuple[str, Spec]]]
    # Of others outside; before the transaction of `apply`.
    ask: Callable[[str, Spec], Sequence[FieldError]] = lambda name, spec: ()
    order: int = 0  # kinds that others refer to come first


@dataclass(frozen=True, slots=True)
class Document:
    kind: ManifestKind
    name: str
    spec: Spec
    place: str  # "pools.yaml:12"


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


def read_documents(text: str, source: str) -> list[Document]:
    """What a file says; raises Invalid with a field error for each fault."""
    return read_files([(text, source)])


def read_files(files: Iterable[tuple[str, str]]) -> list[Document]:
    """The same of several files, as if they were one: (text, name). The faults of all of them
    are told at once.
    """
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
                    f"The {d.kind.name} {d.name} is here a second time; the first is at {first}.",
                )
            )
    for d in found:
        faults += [
            FieldError(f"{d.place}: {d.kind.name} {d.name}: {e.field}", e.message, e.way_out)
            for e in d.kind.validate(d.name, d.spec)
        ]
    if faults:
        raise Invalid(fields=faults)
    # Every run locks rows in one order.
    return sorted(found, key=lambda d: (d.kind.order, d.kind.name, d.name))


def _read_file(text: str, source: str, faults: list[FieldError]) -> list[Document]:
    found: list[Document] = []
    if len(text) > LARGEST:
        faults.append(FieldError(source, f"It is larger than {LARGEST} characters."))
        return found
    try:
        for node in compose_documents(text):
            place = f"{source}:{node.start_mark.line + 1}"
            value = construct(node)
            # "---" alone is an empty document.
            document = None if value is None else _read(value, place, faults)
            found += [document] if document else []
    except (yaml.YAMLError, RecursionError, ValueError) as error:
        faults.append(
            FieldError(source, f"It is not YAML as it should be: {error}", "Mend the file there.")
        )
    return found


def diff_documents(documents: Iterable[Document]) -> list[ApplyResult]:
    return [ApplyResult(d, d.kind.diff(d.name, d.spec)) for d in documents]


def preflight_documents(documents: Iterable[Document]) -> None:
    """What others would refuse, all of it at once. Nothing is changed, and no
    transaction is open.
    """
    faults = [
        FieldError(f"{d.place}: {d.kind.name} {d.name}: {e.field}", e.message, e.way_out)
        for d in documents
        for e in d.kind.ask(d.name, d.spec)
    ]
    if faults:
        raise Invalid(fields=faults)


def apply_documents(documents: Sequence[Document], reason: str = "") -> list[ApplyResult]:
    """All of them or none."""
    with transaction.atomic():
        outcomes = []
        for d in documents:
            changes = d.kind.diff(d.name, d.spec)
            if changes:
                d.kind.apply(d.name, d.spec, reason)
            outcomes.append(ApplyResult(d, changes))
    return outcomes


def export_documents(kind: str = "", names: Sequence[str] = ()) -> str:
    """As a file that `apply` takes back. Names nobody knows are refused."""
    if kind and kind not in _kinds:
        raise Invalid(
            f"There is no kind {kind}.",
            way_out=f"Kinds: {', '.join(k.name for k in list_kinds())}.",
        )
    found: list[dict[str, Any]] = []
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


def _read(value: Any, place: str, faults: list[FieldError]) -> Document | None:
    if not isinstance(value, dict):
        faults.append(
            FieldError(place, "A document is a mapping with kind, name and the fields of its kind.")
        )
        return None
    before = len(faults)
    kind, name = value.get("kind"), value.get("name")
    if not isinstance(kind, str) or kind not in _kinds:
        known = ", ".join(k.name for k in list_kinds())
        faults.append(FieldError(f"{place}: kind", f"{kind!r} is no kind.", f"Kinds: {known}."))
    if not isinstance(name, str) or not name:
        faults.append(FieldError(f"{place}: name", "A document names what it describes."))
    if not all(isinstance(key, str) for key in value):
        faults.append(FieldError(place, "The fields of a document have names."))
    if len(faults) > before:
        return None
    return Document(
        _kinds[str(kind)], str(name), {k: v for k, v in value.items() if k not in HEAD}, place
    )
