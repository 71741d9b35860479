"""The form of a pool: a page's fields as a configuration and back. Pure. What is wrong with a value
is said by the configuration's own reader, so that form, call and file refuse the same with the same
words; here it is only brought to the field that people see."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import yaml

from pools.config.layout import Layout, as_config
from pools.config.placement import placement_options
from pools.pages import provider_form
from pools.pages.provider_form import (
    find_field,
    form_of,
    list_fields,
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
CLASSES_EXAMPLE = "- {class: gpu, count: 2, accepts: [train]}"

# Where a value stands in the configuration, and in the form.
PATHS = (
    "group", "description", "placement", "members.min", "members.max", "lease.acknowledge",
    "lease.heartbeat", "lease.hold", "liveness.heartbeat", "liveness.lost", "priority.max",
    "drain.limit", "provider", "approval.needed", "approval.own", "approval.expires",
    "approval.notice", "approval.hold", "task.timeout", "task.stop_timeout", "task.cpu",
    "task.memory", "task.log", "task.plan", "task.binary",
)  # fmt: skip
NUMBERS = ("members.min", "members.max", "priority.max", "approval.needed")
FLAGS = {"true": True, "false": False}
OWN = (("", "yes, if one approval is required"), ("true", "yes"), ("false", "no"))


@dataclass(frozen=True, slots=True)
class Section:
    title: str
    fields: Sequence[Field]
    text: str = ""
    provider: str = ""  # its kind, where the section is shown for pools of one provider only


# Options of select fields that other modules own, read when the form is shown.
CHOICES: Mapping[str, Callable[[], Sequence[tuple[str, str]]]] = {"placement": placement_options}
ONCE = {"name", "provider", "list"}  # asked for when a pool is made
SECTIONS = (
    Section(
        "Pool",
        (
            Field(
                "name",
                "Name",
                help="Lower-case letters, digits, dots and dashes. It cannot be changed later",
                is_needed=True,
            ),
            Field("provider", "Provider", "select"),  # its options: sections()
            Field("group", "Group", help="Heading of the pool on the overview"),
            Field("description", "Description"),
        ),
    ),
    Section(
        "Members",
        (
            Field("members.min", "Minimum members", "number"),
            Field("members.max", "Maximum members", "number"),
            Field("placement", "Placement", "select"),  # its options: CHOICES
            Field(
                "list",
                "Member list",
                "textarea",
                help=(
                    "One member per line, with its labels: env-1 zone=eu-1 size=large. More can "
                    "be added later."
                ),
            ),
        ),
    ),
    Section(
        "Claims",
        (
            Field(
                "lease.acknowledge",
                "Acknowledge timeout",
                help="Like 30s. A claim that is not acknowledged in time loses its slot",
            ),
            Field(
                "lease.heartbeat",
                "Claim heartbeat interval",
                help="Like 2m. A claim without a heartbeat loses its slot",
            ),
            Field("lease.hold", "Maximum hold time", help="Like 8h"),
        ),
        "What the pool requires of the holder of a claim. Empty: not required.",
    ),
    Section(
        "Member liveness",
        (
            Field(
                "liveness.heartbeat",
                "Member heartbeat interval",
                help=(
                    "Like 2m. A member that is silent for longer is offline and takes no new claims"
                ),
            ),
            Field(
                "liveness.lost",
                "Lost after",
                help="Like 10m offline, or never. The claims of a lost member are lost",
            ),
        ),
        "Empty: members are assumed to be alive.",
    ),
    Section(
        "Approval",
        (
            Field(
                "approval.needed",
                "Required approvals",
                "number",
                help="Number of people who must approve",
            ),
            Field("approval.own", "Requester may approve", "select", options=OWN),
            Field(
                "approval.expires",
                "Decision deadline",
                help="Like 24h. Without a decision by then, the plan is stale and the claim ends",
            ),
            Field("approval.notice", "Reminder", help="Like 2h before the deadline"),
            Field(
                "approval.hold",
                "Slot reservation",
                help="always, or like 4h: after that the slot is released and the plan is kept",
            ),
        ),
        "How plans are approved, for tasks that plan before they apply.",
    ),
    Section(
        "Tasks",
        (
            Field("task.timeout", "Step time limit", help="Like 1h"),
            Field(
                "task.stop_timeout",
                "Apply stop timeout",
                help="Like 10m. An interrupted apply may finish in this time before it is killed",
            ),
            Field("task.cpu", "CPU time limit", help="Like 10m"),
            Field("task.memory", "Memory limit", help="Like 2GB"),
            Field(
                "task.log",
                "Log size limit",
                help="Like 8MB. The start and the end of a longer log are kept",
            ),
            Field("task.plan", "Plan size limit", help="Like 32MB"),
            Field("task.binary", "Binary", help="tofu, terraform, or a path on the agents"),
        ),
        "Limits of one task, for pools with agents.",
    ),
    Section(
        "Limits",
        (
            Field(
                "priority.max",
                "Highest claimant priority",
                "number",
                help="Operators may set up to 99",
            ),
            Field("drain.limit", "Drain limit", help="Like 10m. Default deadline of a drain"),
        ),
    ),
)


def read_form(given: Mapping[str, str], *, with_members: bool) -> dict[str, Any]:
    """What somebody filled in, as a configuration. Numbers that are none stay text, so that the
    reader can say so.
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
        at = config
        *parents, last = path.split(".")
        for parent in parents:
            at = at.setdefault(parent, {})
        at[last] = (
            number_of(text)
            if path in NUMBERS
            else FLAGS.get(text, text)
            if path == "approval.own"
            else text
        )
    if kind := config.get("provider"):
        config["provider"] = read_provider(kind, given)
    if with_members and (rows := read_member_lines(given.get("list", ""))):
        config.setdefault("members", {})["list"] = rows
    return config


def read_slots(given: Mapping[str, str]) -> Any:
    match given.get("form", "plain"):
        case "tasks":
            return [word for word in given.get("tasks", "").replace(",", " ").split() if word]
        case "ports":
            ports: dict[str, Any] = {"ports": given.get("ports", "").strip()}
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


def read_member_lines(text: str) -> list[dict[str, Any]]:
    """'name zone=eu-1 size=large', one a line."""
    rows = []
    for line in text.splitlines():
        words = line.replace(",", " ").split()
        if words:
            labels = dict(pair.partition("=")[::2] for pair in words[1:])
            rows.append({"name": words[0], **({"labels": labels} if labels else {})})
    return rows


def preserve_unshown(config: dict[str, Any], before: Mapping[str, Any]) -> dict[str, Any]:
    """What the form does not ask for stays as it was: hosts, environment, scaling, roll, labels
    of new members.
    """
    if labels := before.get("members", {}).get("labels"):
        config.setdefault("members", {}).setdefault("labels", labels)
    for name in ("approval", "task", "scaling", "roll"):
        unshown = {k: v for k, v in before.get(name, {}).items() if f"{name}.{k}" not in PATHS}
        if unshown:
            config[name] = unshown | config.get(name, {})
    return config


def number_of(text: str) -> Any:
    return (
        int(text)
        if text.lstrip("-").isascii() and text.lstrip("-").isdigit() and len(text) < 19
        else text
    )


def values_of(config: Mapping[str, Any], layout: Layout | None = None) -> dict[str, str]:
    """The other way round: what the fields of the form show."""
    values = {"name": str(config.get("name", ""))}
    for path in PATHS:
        at: Any = config
        for part in path.split("."):
            at = at.get(part) if isinstance(at, Mapping) else None
        values[path] = (
            ""
            if at is None or isinstance(at, Mapping)
            else str(at).lower()
            if isinstance(at, bool)
            else str(at)
        )
    values |= provider_form.values_of(config.get("provider"))
    slots = as_config(layout) if layout is not None else config.get("slots", 3)
    values["form"] = layout.form if layout is not None else "plain"
    if values["form"] == "plain":
        values["count"] = str(slots)
    elif values["form"] == "tasks":
        values["tasks"] = ", ".join(slots)
    elif values["form"] == "ports":
        values |= {
            name: str(slots[name]) for name in ("ports", "segment", "quota") if name in slots
        }
        values["protocols"] = "shared" if slots.get("shared") else " ".join(slots["protocols"])
    elif values["form"] == "classes":
        values["classes"] = yaml.safe_dump(slots, sort_keys=False, default_flow_style=None)
    return values


def field_for(error: FieldError, form: str, provider: str = "") -> str:
    """The field of the form that a field of the configuration is filled in at. `form`: of the
    layout; `provider`: its kind.
    """
    path = error.field
    if path.startswith("slots"):
        inside = path.partition(".")[2]
        if form == "ports" and inside.partition("[")[0] in (
            "ports",
            "segment",
            "quota",
            "protocols",
        ):
            return inside.partition("[")[0]
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
    """Every field of a pool, with every fault at its field.

    provider: kind of the pool that is edited. Empty: the pool is new, and its form has the fields
    of every provider that can be chosen.
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
        if field.name in CHOICES:
            field = replace(field, options=CHOICES[field.name]())
        if field.name == "provider":
            field = replace(field, options=provider_options(allowed))
        return replace(field, value=values.get(field.name, ""), errors=faults)

    kinds = [each for each, _ in provider_options(allowed)] if is_new else [provider]
    of_providers = [
        Section(found.title, list_fields(each), found.text, each if is_new else "")
        for each in kinds
        if (found := form_of(each)) is not None
    ]
    first, *others = SECTIONS
    return [
        replace(
            section,
            fields=[fill(field) for field in section.fields if is_new or field.name not in ONCE],
        )
        for section in (first, *of_providers, *others)
    ]


def with_line_number(error: FieldError, name: str, values: Mapping[str, str]) -> FieldError:
    """A fault in a list of lines names the line."""
    if name != "list":
        return replace(error, field=name)
    at = error.field.partition("[")[2].partition("]")[0]
    rows = [line.split()[0] for line in values.get("list", "").splitlines() if line.split()]
    which = rows[int(at)] if at.isdigit() and int(at) < len(rows) else ""
    return FieldError(
        "list", f"{which}: {error.message}" if which else error.message, error.way_out
    )


def slot_fields(values: Mapping[str, str], errors: Sequence[FieldError]) -> dict[str, Field]:
    """The fields of each form of layout; the page shows those of the chosen one."""
    form = values.get("form", "plain")

    def make(
        name: str,
        label: str,
        kind: str = "text",
        default: str = "",
        help: str = "",
        options: Sequence[tuple[str, str]] = (),
    ) -> Field:
        faults = tuple(replace(e, field=name) for e in errors if field_for(e, form) == name)
        return Field(
            name, label, kind, values.get(name, "") or default, help, options, errors=faults
        )

    protocols = (
        ("tcp udp", "TCP and UDP, each its own"),
        ("tcp", "TCP"),
        ("udp", "UDP"),
        ("shared", "one listener for all protocols"),
    )
    return {
        "count": make(
            "count",
            "Slots per member",
            "number",
            "" if form == "plain" and "count" in values else "4",
        ),
        "tasks": make(
            "tasks",
            "Slots per member",
            default=TASKS_DEFAULT,
            help="any takes plan_and_apply, plan takes plans only",
        ),
        "ports": make(
            "ports", "Ports", default=PORTS_DEFAULT, help="Range from the first to the last port"
        ),
        "protocols": make("protocols", "Protocols", "select", default="tcp udp", options=protocols),
        "segment": make("segment", "Segment", "number", "1", "Ports allocated together"),
        "quota": make("quota", "Quota", "number", "50", "Maximum listeners per member"),
        "classes": make(
            "classes", "Classes", "textarea", CLASSES_EXAMPLE, "YAML, as in a pool file"
        ),
    }
