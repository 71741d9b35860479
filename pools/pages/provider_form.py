"""The part of a pool's form that its provider declares (`Provider.form`): options as fields and
back. Pure.

A field has the name `provider.<kind>.<path>`, because the form of a new pool holds the fields of
all providers, and two providers may have options of the same name.
"""

from collections.abc import Collection, Mapping, Sequence
from copy import deepcopy
from typing import Any

from pools.providers.base import known_providers
from pools.providers.display import OptionForm
from project.kernel.ui.confirm import Field

PREFIX = "provider."


def provider_options(allowed: Collection[str] | None = None) -> list[tuple[str, str]]:
    """Kinds of providers with their texts, for a select field. `allowed` None: all kinds."""
    return [
        (kind, f"{kind}: {provider.texts.choice}" if provider.texts.choice else kind)
        for kind, provider in known_providers().items()
        if allowed is None or kind in allowed
    ]


def form_of(kind: str) -> OptionForm | None:
    provider = known_providers().get(kind)
    return None if provider is None else provider.form


def list_fields(kind: str) -> Sequence[Field]:
    form = form_of(kind)
    if form is None:
        return ()
    return [
        Field(name_of(kind, each.path), each.label, help=each.help or _help_of(kind, each.path))
        for each in form.fields
    ]


def _help_of(kind: str, path: str) -> str:
    try:
        return known_providers()[kind].option_fields.find(path).help
    except KeyError:
        return ""


def name_of(kind: str, path: str) -> str:
    return f"{PREFIX}{kind}.{path}"


def find_field(kind: str, path: str) -> str:
    """The field for `path` of the configuration, like provider.template.image; empty: the form does
    not show it.
    """
    name = name_of(kind, path.removeprefix(PREFIX))
    return name if any(name == field.name for field in list_fields(kind)) else ""


def read_provider(kind: str, given: Mapping[str, str], before: object = None) -> object:
    """`provider:` of the configuration: `before` with the given values. An empty field removes its
    option, a missing field keeps it.
    """
    form = form_of(kind)
    if form is None:
        return before or kind
    options: dict[str, Any] = (
        deepcopy(dict(before)) if isinstance(before, Mapping) else {"kind": kind}
    )
    for each in form.fields:
        # Also for an empty value, so that a fault names the field inside.
        at, last = open_parent(options, each.path)
        name = name_of(kind, each.path)
        if text := given.get(name, "").strip():
            at[last] = text
        elif name in given:
            at.pop(last, None)
    return options


def values_of(provider: object) -> dict[str, str]:
    """The values of the fields for `provider:` of a configuration, a kind or a mapping."""
    options = provider if isinstance(provider, Mapping) else {"kind": provider or ""}
    kind = str(options.get("kind", ""))
    values = {"provider": kind}
    for each in getattr(form_of(kind), "fields", ()):
        value = find_value(options, each.path)
        values[name_of(kind, each.path)] = "" if value is None else str(value)
    return values


def find_value(config: object, path: str) -> object:
    """The value at a path of a configuration, like git.hosts; None: there is none."""
    for name in path.split("."):
        config = config.get(name) if isinstance(config, Mapping) else None
    return config


def open_parent(config: dict[str, Any], path: str) -> tuple[dict[str, Any], str]:
    """The mapping that holds the last name of a path, and this name. Adds missing mappings."""
    *parents, last = path.split(".")
    for name in parents:
        config = config.setdefault(name, {})
    return config, last
