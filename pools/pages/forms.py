"""The form of a pool: its fields as a configuration and back. Pure.

`pools/config` declares the fields: help, limits and choices come from there. Its parser checks the
values, so that form, API and file give the same errors; this module assigns each error to the field
of the form.
"""

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import yaml

from pools.config.layout import Layout, as_config
from pools.config.layout_spec import COUNT, PORT_FIELDS
from pools.config.parsing import Choice, Flag, Integer, ValueType
from pools.config.spec import POOL
from pools.pages import provider_form
from pools.pages.provider_form import (
    find_field,
    find_value,
    form_of,
    list_fields,
    open_parent,
    provider_options,
    read_provider,
)
from project.kernel.errors import FieldError
from project.kernel.ui.confirm import Field
from project.kernel.yaml_text import load_yaml

TASKS_DEFAULT = "any, plan, plan"
PORTS_DEFAULT = "30000-30049"
FORMS = (
    (
        "plain",
        "Identical slots",
        "Environments, seats, licences: every member has the same number.",
    ),
    (
        "tasks",
        "Task slots",
        "Terraform and similar: an any slot takes plan_and_apply, a plan slot takes plans only.",
    ),
    ("ports", "Ports", "Every member offers the port numbers of a range."),
    ("node", "Whole member", "One claim takes the whole member."),
    ("classes", "Custom classes", "Slot classes, each with the kinds of claims that it accepts."),
)
PROTOCOLS = (
    ("tcp udp", "TCP and UDP, separate listeners"),
    ("tcp", "TCP"),
    ("udp", "UDP"),
    ("shared", "all protocols, shared listener"),
)
CLASSES_EXAMPLE = "- {class: gpu, count: 2, accepts: [train]}"

FLAGS = {"true": True, "false": False}
OWN = (("", "default: yes if one approval is required"), ("true", "yes"), ("false", "no"))
LIMITS = {"minimum": "min", "maximum": "max", "maxLength": "maxlength"}  # JSON Schema to HTML
ONCE = {"name", "provider", "list"}  # only in the form of a new pool


@dataclass(frozen=True, slots=True)
class Section:
    title: str
    fields: Sequence[Field]
    text: str = ""
    provider: str = ""  # its kind, if the section is shown for pools of one provider only


# Labels by the path in the configuration.
LABELS: Sequence[tuple[str, Mapping[str, str], str]] = (
    (
        "Pool",
        {
            "name": "Name",
            "provider": "Provider",
            "group": "Group",
            "description": "Description",
        },
        "",
    ),
    (
        "Members",
        {
            "members.min": "Minimum members",
            "members.max": "Maximum members",
            "placement": "Placement",
            "list": "Member list",
        },
        "",
    ),
    (
        "Claims",
        {
            "lease.acknowledge": "Acknowledge timeout",
            "lease.heartbeat": "Claim heartbeat interval",
            "lease.hold": "Maximum hold time",
        },
        "What the pool requires of the holder of a claim. Empty: not required.",
    ),
    (
        "Member liveness",
        {"liveness.heartbeat": "Member heartbeat interval", "liveness.lost": "Lost after"},
        "Empty: members are assumed to be alive.",
    ),
    (
        "Approval",
        {
            "approval.needed": "Required approvals",
            "approval.own": "Requester may approve",
            "approval.expires": "Decision deadline",
            "approval.notice": "Reminder",
            "approval.hold": "Slot reservation",
        },
        "How plans are approved, for tasks that plan before they apply.",
    ),
    (
        "Tasks",
        {
            "task.timeout": "Step time limit",
            "task.stop_timeout": "Apply stop timeout",
            "task.cpu": "CPU time limit",
            "task.memory": "Memory limit",
            "task.log": "Log size limit",
            "task.plan": "Plan size limit",
            "task.binary": "Binary",
        },
        "Limits of one task, for pools with agents.",
    ),
    ("Limits", {"priority.max": "Highest claimant priority", "drain.limit": "Drain limit"}, ""),
)
PATHS = tuple(path for _, labels, _ in LABELS for path in labels if path not in ("name", "list"))


def make_field(path: str, label: str) -> Field:
    """An empty field with the help, the limits and the choices of its declaration."""
    if path == "list":
        text = "One member per line, with its labels: env-1 zone=eu-1 size=large."
        return Field(path, label, "textarea", help=text)
    declared = POOL.find(path)
    made = Field(path, label, help=declared.help, limits=limits_of(declared.kind))
    if path == "provider":
        return replace(made, kind="select")  # sections() adds the kinds
    if isinstance(declared.kind, Choice):
        options = tuple((name, str(text)) for name, text in declared.kind.texts.items())
        return replace(made, kind="select", options=options, help=declared.text)
    if isinstance(declared.kind, Flag):
        return replace(made, kind="select", options=OWN)
    kind = "number" if isinstance(declared.kind, Integer) else "text"
    return replace(made, kind=kind, is_needed=declared.is_required and path == "name")


def limits_of(kind: ValueType[Any]) -> dict[str, int]:
    return {LIMITS[name]: limit for name, limit in kind.schema().items() if name in LIMITS}


def read_form(given: Mapping[str, str], *, with_members: bool) -> dict[str, Any]:
    """The given values as a configuration. Text in place of a number stays text, so that the parser
    reports it.
    """
    config: dict[str, Any] = {
        "kind": "Pool",
        "name": given.get("name", "").strip(),
        "slots": read_slots(given),
    }
    for path in PATHS:
        text = given.get(path, "").strip()
        if text == "":
            continue
        kind = POOL.find(path).kind
        is_flag, is_number = isinstance(kind, Flag), isinstance(kind, Integer)
        at, last = open_parent(config, path)
        at[last] = FLAGS.get(text, text) if is_flag else number_of(text) if is_number else text
    if provider := config.get("provider"):
        config["provider"] = read_provider(provider, given)
    if with_members and (rows := read_member_lines(given.get("list", ""))):
        config.setdefault("members", {})["list"] = rows
    return config


def read_slots(given: Mapping[str, str]) -> object:
    match given.get("form", "plain"):
        case "tasks":
            return [word for word in given.get("tasks", "").replace(",", " ").split() if word]
        case "ports":
            ports: dict[str, object] = {"ports": given.get("ports", "").strip()}
            protocols = given.get("protocols", "tcp udp")
            ports |= {"shared": True} if protocols == "shared" else {"protocols": protocols.split()}
            for name in ("segment", "quota"):
                if text := given.get(name, "").strip():
                    ports[name] = number_of(text)
            return ports
        case "node":
            return "node"
        case "classes":
            try:
                return load_yaml(given.get("classes", ""))
            except yaml.YAMLError:
                return given.get("classes", "")
        case _:
            return number_of(given.get("count", "").strip())


def read_member_lines(text: str) -> list[dict[str, object]]:
    """Lines like 'name zone=eu-1 size=large' as members."""
    rows: list[dict[str, object]] = []
    for line in text.splitlines():
        words = line.replace(",", " ").split()
        if words:
            labels = dict(pair.partition("=")[::2] for pair in words[1:])
            rows.append({"name": words[0], **({"labels": labels} if labels else {})})
    return rows


def preserve_unshown(config: dict[str, Any], before: Mapping[str, Any]) -> dict[str, Any]:
    """Keeps the fields that the form does not show: hosts, environment, scaling, roll,
    backends, certificates, drift, labels of new members.
    """
    if labels := before.get("members", {}).get("labels"):
        config.setdefault("members", {}).setdefault("labels", labels)
    if certificates := before.get("certificates"):
        config.setdefault("certificates", certificates)
    for name in ("approval", "task", "scaling", "roll", "backends", "drift"):
        unshown = {k: v for k, v in before.get(name, {}).items() if f"{name}.{k}" not in PATHS}
        if unshown:
            config[name] = unshown | config.get(name, {})
    return config


def number_of(text: str) -> int | str:
    return int(text) if re.fullmatch(r"-?[0-9]{1,18}", text) else text


def values_of(config: Mapping[str, object], layout: Layout | None = None) -> dict[str, str]:
    """The values of the form's fields for a configuration."""
    values = {"name": str(config.get("name", ""))}
    for path in PATHS:
        value = find_value(config, path)
        if value is None or isinstance(value, Mapping):
            value = ""
        values[path] = str(value).lower() if isinstance(value, bool) else str(value)
    values |= provider_form.values_of(config.get("provider"))
    slots: Any = as_config(layout) if layout is not None else config.get("slots", 3)
    values["form"] = layout.form if layout is not None else "plain"
    match values["form"]:
        case "plain":
            values["count"] = str(slots)
        case "tasks":
            values["tasks"] = ", ".join(slots)
        case "ports":
            values |= {name: str(slots[name]) for name in ("ports", "segment", "quota")}
            values["protocols"] = " ".join(slots.get("protocols", ["shared"]))
        case "classes":
            values["classes"] = yaml.safe_dump(slots, sort_keys=False, default_flow_style=None)
    return values


def field_for(error: FieldError, form: str, provider: str = "") -> str:
    """The field of the form for the field of an error; empty: the form does not show it. `form`: of
    the layout; `provider`: its kind.
    """
    path = error.field
    if path.startswith("slots"):
        inside = path.partition(".")[2].partition("[")[0]
        if form == "ports" and inside in ("ports", "segment", "quota", "protocols"):
            return inside
        return {"plain": "count", "tasks": "tasks", "ports": "ports", "classes": "classes"}.get(
            form, "form"
        )
    if path.startswith("members.list"):
        return "list"
    if path in PATHS or path == "name":
        return path
    if path.startswith("provider."):
        return find_field(provider, path)
    return next((known for known in PATHS if path.startswith(known.partition(".")[0])), "")


def sections(
    values: Mapping[str, str],
    errors: Sequence[FieldError],
    *,
    provider: str = "",
    allowed: Collection[str] | None = None,
) -> list[Section]:
    """The sections of the form, with each error at its field.

    provider: kind of the edited pool. Empty: the pool is new, and its form has the fields of every
    allowed provider.
    allowed: kinds of providers that can be chosen. None: all.
    """
    form, is_new = values.get("form", "plain"), not provider
    kind = provider or values.get("provider", "")

    def fill(field: Field) -> Field:
        faults = tuple(
            with_line_number(e, field.name, values)
            for e in errors
            if field_for(e, form, kind) == field.name
        )
        if field.name == "provider":
            field = replace(field, options=provider_options(allowed))
        return replace(field, value=values.get(field.name, ""), errors=faults)

    kinds = [each for each, _ in provider_options(allowed)] if is_new else [provider]
    of_providers = [
        Section(found.title, list_fields(each), found.text, each if is_new else "")
        for each in kinds
        if (found := form_of(each)) is not None
    ]
    first, *others = (
        Section(title, [make_field(path, label) for path, label in labels.items()], text)
        for title, labels, text in LABELS
    )
    return [
        replace(
            section,
            fields=[fill(field) for field in section.fields if is_new or field.name not in ONCE],
        )
        for section in (first, *of_providers, *others)
    ]


def with_line_number(error: FieldError, name: str, values: Mapping[str, str]) -> FieldError:
    """An error in the member list names the member."""
    if name != "list":
        return replace(error, field=name)
    at = error.field.partition("[")[2].partition("]")[0]
    rows = [line.split()[0] for line in values.get("list", "").splitlines() if line.split()]
    which = rows[int(at)] if at.isdigit() and int(at) < len(rows) else ""
    return FieldError(
        "list", f"{which}: {error.message}" if which else error.message, error.way_out
    )


def slot_fields(values: Mapping[str, str], errors: Sequence[FieldError]) -> dict[str, Field]:
    """The fields of all layouts; the page shows those of the chosen layout."""
    form = values.get("form", "plain")
    count = "" if form == "plain" and "count" in values else "4"
    help_of_tasks = "any takes plan_and_apply, plan takes plans only."
    fields = [
        Field("count", "Slots per member", "number", count, limits=limits_of(COUNT)),
        Field("tasks", "Slots per member", "text", TASKS_DEFAULT, help_of_tasks),
        Field("ports", "Ports", "text", PORTS_DEFAULT, PORT_FIELDS["ports"].help),
        Field("protocols", "Protocols", "select", "tcp udp", options=PROTOCOLS),
        Field("classes", "Classes", "textarea", CLASSES_EXAMPLE, "YAML, as in a pool file."),
    ]
    for name, label in (("segment", "Segment"), ("quota", "Quota")):
        declared = PORT_FIELDS[name]
        limits = limits_of(declared.kind)
        default = str(declared.default)
        fields.append(Field(name, label, "number", default, declared.help, limits=limits))
    return {
        field.name: replace(
            field,
            value=values.get(field.name, "") or field.value,
            errors=tuple(
                replace(e, field=field.name) for e in errors if field_for(e, form) == field.name
            ),
        )
        for field in fields
    }
