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
    ("plain", "Slots of one kind", "Environments, seats, licences: each member has so many."),
    (
        "tasks",
        "Task slots",
        "Terraform and the like: any takes plan_and_apply, plan takes plans only.",
    ),
    ("ports", "Ports", "Each member offers numbers of a range."),
    ("node", "The whole member", "One claim has all of it."),
    ("classes", "Written out", "Classes with the kinds of claims that each accepts."),
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
OWN = (("", "counts while one yes is enough"), ("true", "counts"), ("false", "does not count"))


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
        "What it is",
        (
            Field(
                "name",
                "Name",
                help="Small letters, digits, dots, dashes; it never changes",
                is_needed=True,
            ),
            Field("provider", "Members are", "select"),  # its options: sections()
            Field("group", "Group", help="A heading on the overview"),
            Field("description", "Description"),
        ),
    ),
    Section(
        "Members",
        (
            Field("members.min", "At least", "number"),
            Field("members.max", "At most", "number"),
            Field("placement", "Placement", "select"),  # its options: CHOICES
            Field(
                "list",
                "Members, one a line",
                "textarea",
                help=(
                    "A name, then its labels: env-1 zone=eu-1 size=large. More can be added later."
                ),
            ),
        ),
    ),
    Section(
        "Claims",
        (
            Field(
                "lease.acknowledge",
                "Acknowledge within",
                help="Like 30s. Who doesn’t answer loses the slot",
            ),
            Field(
                "lease.heartbeat",
                "Heartbeat every",
                help="Like 2m. Whoever falls silent loses the slot",
            ),
            Field("lease.hold", "Hold at most", help="Like 8h"),
        ),
        "What a holder owes. Empty: nothing is asked.",
    ),
    Section(
        "Are members alive?",
        (
            Field(
                "liveness.heartbeat",
                "Members’ heartbeat every",
                help="Like 2m. Silent longer: offline, nothing new",
            ),
            Field(
                "liveness.lost",
                "Then lost after",
                help="Like 10m, or never. Its claims are lost then",
            ),
        ),
        "Empty: members are taken to be there.",
    ),
    Section(
        "Approval",
        (
            Field("approval.needed", "Yes needed", "number", help="Of how many people"),
            Field("approval.own", "One’s own yes", "select", options=OWN),
            Field(
                "approval.expires",
                "Decide within",
                help="Like 24h. Nobody decided: the plan is stale, the claim ends",
            ),
            Field("approval.notice", "Notice before", help="Like 2h before that"),
            Field(
                "approval.hold",
                "Hold the slot",
                help="always, or like 4h: then the slot goes and the plan stays",
            ),
        ),
        "How plans are decided on, where tasks plan before they apply.",
    ),
    Section(
        "Tasks",
        (
            Field("task.timeout", "A step takes at most", help="Like 1h"),
            Field(
                "task.stop_timeout",
                "An ended apply has",
                help="Like 10m, to finish what it began, before it is killed",
            ),
            Field("task.cpu", "CPU time at most", help="Like 10m"),
            Field("task.memory", "Memory at most", help="Like 2GB"),
            Field("task.log", "Log kept", help="Like 8MB: its head and its tail"),
            Field("task.plan", "Saved plan at most", help="Like 32MB"),
            Field("task.binary", "Program", help="tofu, terraform, or its path on the agents"),
        ),
        "What a task may take, where members are agents.",
    ),
    Section(
        "Limits",
        (
            Field(
                "priority.max",
                "Highest priority of a claimant",
                "number",
                help="Operators go up to 99",
            ),
            Field("drain.limit", "Drain at most", help="Like 10m"),
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


def keep_unshown(config: dict[str, Any], before: Mapping[str, Any]) -> dict[str, Any]:
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
            lined(e, field.name, values) for e in errors if field_for(e, form, kind) == field.name
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


def lined(error: FieldError, name: str, values: Mapping[str, str]) -> FieldError:
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
        ("tcp udp", "TCP and UDP, apart"),
        ("tcp", "TCP"),
        ("udp", "UDP"),
        ("shared", "one listener for all protocols"),
    )
    return {
        "count": make(
            "count",
            "Slots of a member",
            "number",
            "" if form == "plain" and "count" in values else "4",
        ),
        "tasks": make(
            "tasks",
            "Slots of a member",
            default=TASKS_DEFAULT,
            help="any takes plan_and_apply, plan takes plans only",
        ),
        "ports": make("ports", "Ports", default=PORTS_DEFAULT, help="First and last"),
        "protocols": make(
            "protocols", "They serve", "select", default="tcp udp", options=protocols
        ),
        "segment": make("segment", "Segment", "number", "1", "Ports handed out together"),
        "quota": make("quota", "Quota", "number", "50", "Listeners a member takes"),
        "classes": make("classes", "Classes", "textarea", CLASSES_EXAMPLE, "As in a file"),
    }
