"""The configuration of a pool: one form for the body of a call, a file and a page. Read as a whole,
every fault at once. Pure.

`read_pool` answers what was understood and every fault; `parse_pool` raises them together. What is
stored in `pool.spec` is the canonical form (`PoolSpec.as_stored`), in which shorthands are written
out, so that two ways to say the same are no difference.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from pools.config import layout as layouts
from pools.config.approval_spec import APPROVAL, ApprovalSpec
from pools.config.approval_spec import DEFAULT as DEFAULT_APPROVAL
from pools.config.durations import format_duration
from pools.config.layout import NO_OWN_SLOTS, Layout, OwnSlots
from pools.config.layout_spec import read_layout, read_own_slots
from pools.config.parsing import (
    Faults,
    field_path,
    read_choice,
    read_duration,
    read_integer,
    read_labels,
    read_mapping,
    read_name,
    read_text,
    read_value,
    show_value,
    suggest_names,
)
from pools.config.placement import DEFAULT_PLACEMENT, PLACEMENTS
from pools.config.roll_spec import DEFAULT as DEFAULT_ROLL
from pools.config.roll_spec import ROLL, RollSpec
from pools.config.scaling_spec import Scaling, read_scaling
from pools.config.task_spec import DEFAULT as DEFAULT_TASK
from pools.config.task_spec import TASK, TaskSpec
from project.kernel.errors import FieldError, Invalid

FIELDS = (
    "kind", "name", "group", "description", "provider", "slots", "members", "placement", "lease",
    "liveness", "priority", "drain", "approval", "task", "scaling", "roll",
)  # fmt: skip
MEMBER_FIELDS = ("name", "labels", "slots", "external_id", "ports", "foreign")
RESERVED = ("new",)  # /pools/new/ is a page

NAME = re.compile(r"[a-z0-9](?:[a-z0-9._-]{0,61}[a-z0-9])?")
NAME_RULE = (
    "Up to 63 small letters, digits, dots, dashes and underscores; the first and last a "
    "letter or digit."
)
MEMBER_NAME = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]{0,61}[A-Za-z0-9])?")
MEMBER_NAME_RULE = (
    "Up to 63 letters, digits, dots, dashes and underscores; the first and last a letter or digit."
)

SECOND, MINUTE, HOUR, DAY = 1.0, 60.0, 3600.0, 86400.0
DEFAULT_MAX_MEMBERS = 10
MOST_MEMBERS = 100_000
DEFAULT_LOST = 10 * MINUTE
DEFAULT_DRAIN = 10 * MINUTE
STOP_MARGIN = 1 * MINUTE  # to terminate and kill what does not obey its SIGINT, and to report
AGENT_HEARTBEAT = 2 * MINUTE
AGENT_SLOTS = ("any", "plan", "plan")
TASK_KINDS = {kind for kinds in layouts.TASKS.values() for kind in kinds}
NEVER = "never"

# Reads the options of a provider (all of `provider:` but its kind) and answers them in canonical
# form. Its attribute `has_agents` is true where members run agents; see `turns_agents_off`.
OptionReader = Callable[[Mapping[str, Any], str, Faults], Mapping[str, Any]]


def turns_agents_off(options: Mapping[str, Any]) -> bool:
    """Whether a pool with these provider options says `agent: false`: its members run no agent."""
    return options.get("agent") is False


@dataclass(frozen=True, slots=True)
class MemberSpec:
    """A member that somebody declared."""

    name: str
    labels: Mapping[str, str] = field(default_factory=dict)
    external_id: str = ""
    own: OwnSlots = NO_OWN_SLOTS

    def own_as_stored(self) -> dict[str, Any]:
        """What `member.spec` keeps: only what the member has of its own."""
        kept: dict[str, Any] = {}
        if self.own.runs is not None:
            names = [lane for lane, count in self.own.runs for _ in range(count)]
            kept["slots"] = (
                names if any(lane in layouts.TASKS for lane, _ in self.own.runs) else len(names)
            )
        if self.own.first is not None:
            kept["ports"] = f"{self.own.first}-{self.own.last}"
        if self.own.foreign:
            kept["foreign"] = sorted(self.own.foreign)
        return kept

    def as_config(self) -> dict[str, Any]:
        config: dict[str, Any] = {"name": self.name}
        if self.labels:
            config["labels"] = dict(sorted(self.labels.items()))
        if self.external_id:
            config["external_id"] = self.external_id
        return config | self.own_as_stored()


@dataclass(frozen=True, slots=True)
class LeaseSpec:
    """How long a claim may stay silent. Seconds; None: not asked for."""

    acknowledge: float | None = None
    heartbeat: float | None = None
    hold: float | None = None


@dataclass(frozen=True, slots=True)
class Liveness:
    """How long a member may stay silent: then it is offline, and `lost` later its claims are
    lost (None: never by silence alone).
    """

    heartbeat: float
    lost: float | None = DEFAULT_LOST


@dataclass(frozen=True, slots=True)
class PoolSpec:
    name: str
    layout: Layout
    group: str = ""
    description: str = ""
    provider: str = "static"
    options: Mapping[str, Any] = field(default_factory=dict)
    min_members: int = 0
    max_members: int = DEFAULT_MAX_MEMBERS
    placement: str = DEFAULT_PLACEMENT
    lease: LeaseSpec = LeaseSpec()
    liveness: Liveness | None = None
    top_priority: int = 0  # what a claimant may ask for at most
    drain_limit: float = DEFAULT_DRAIN  # seconds a slot may drain before whoever is left is put out
    # None: the configuration says nothing about its members.
    declared: tuple[MemberSpec, ...] | None = None
    scaling: Scaling | None = None  # None: members come and go by hand
    # Of members that are made as demand wants them.
    member_labels: Mapping[str, str] = field(default_factory=dict)
    roll: RollSpec = DEFAULT_ROLL  # how members that are outdated are renewed
    # How plans are decided on, where tasks plan before they apply.
    approval: ApprovalSpec = DEFAULT_APPROVAL
    task: TaskSpec = DEFAULT_TASK  # what a task may take, where members are agents

    def as_stored(self) -> dict[str, Any]:
        """Canonical: all that decides, defaults written out. Name and members have rows of
        their own.
        """
        lease = {
            k: format_duration(v)
            for k in ("acknowledge", "heartbeat", "hold")
            if (v := getattr(self.lease, k)) is not None
        }
        stored: dict[str, Any] = {
            "provider": {"kind": self.provider, **self.options},
            "slots": layouts.as_config(self.layout),
            "members": {"min": self.min_members, "max": self.max_members},
            "placement": self.placement,
            "priority": {"max": self.top_priority},
            "drain": {"limit": format_duration(self.drain_limit)},
        }
        stored |= {
            k: v
            for k, v in (("group", self.group), ("description", self.description), ("lease", lease))
            if v
        }
        if self.liveness is not None:
            lost = NEVER if self.liveness.lost is None else format_duration(self.liveness.lost)
            stored["liveness"] = {
                "heartbeat": format_duration(self.liveness.heartbeat),
                "lost": lost,
            }
        if self.scaling is not None:
            stored["scaling"] = self.scaling.as_config()
        if self.member_labels:
            stored["members"]["labels"] = dict(sorted(self.member_labels.items()))
        if self.roll != DEFAULT_ROLL:
            stored["roll"] = ROLL.write(self.roll)
        if self.approval != DEFAULT_APPROVAL:
            stored["approval"] = APPROVAL.write(self.approval)
        if self.task != DEFAULT_TASK:
            stored["task"] = TASK.write(self.task)
        return stored

    def as_config(self) -> dict[str, Any]:
        """The whole configuration, as a file would say it."""
        stored = self.as_stored()
        if self.declared is not None:
            stored["members"]["list"] = [m.as_config() for m in self.declared]
        if set(stored["provider"]) == {"kind"}:
            stored["provider"] = self.provider
        order = [f for f in FIELDS if f in stored]
        return {"kind": "Pool", "name": self.name, **{f: stored[f] for f in order}}


def parse_pool(config: Any, providers: Mapping[str, OptionReader]) -> PoolSpec:
    spec, faults = read_pool(config, providers)
    if spec is None:
        raise Invalid(fields=faults)
    return spec


def validate(config: Any, providers: Mapping[str, OptionReader]) -> list[FieldError]:
    return read_pool(config, providers)[1]


def read_pool(
    config: Any, providers: Mapping[str, OptionReader], where: str = ""
) -> tuple[PoolSpec | None, list[FieldError]]:
    """What the configuration says and every fault in it. There is a spec only where there
    is no fault.
    """
    faults = Faults()
    given = read_mapping(config, where, FIELDS, faults)
    if not given and faults.found:
        return None, faults.found
    if given.get("kind", "Pool") != "Pool":
        faults.add(
            field_path(where, "kind"),
            f"{show_value(given['kind'])} is not a pool.",
            "Write kind: Pool.",
        )
    name = read_name(given.get("name"), field_path(where, "name"), faults, NAME, NAME_RULE)
    if name in RESERVED:
        faults.add(
            field_path(where, "name"), f"{name} is the address of a page.", "Choose another name."
        )
    provider, options = _read_provider(
        given.get("provider", "static"), field_path(where, "provider"), providers, faults
    )
    is_off = turns_agents_off(options)
    has_agents = bool(getattr(providers.get(provider), "has_agents", False)) and not is_off
    layout = _read_layout(
        given.get("slots"), field_path(where, "slots"), faults, has_agents=has_agents
    )
    if is_off and layout is not None and set(layouts.kinds(layout)) & TASK_KINDS:
        faults.add(
            field_path(where, "slots"),
            "These slots take tasks, and provider.agent: false leaves no agent to run them.",
            "Write the number of slots of a member, like slots: 2, or leave provider.agent out.",
        )
    members = _read_members(given.get("members"), field_path(where, "members"), layout, faults)
    placement = read_choice(given, where, "placement", faults, PLACEMENTS, DEFAULT_PLACEMENT)
    lease = _read_lease(given.get("lease"), field_path(where, "lease"), faults)
    liveness = _read_liveness(given.get("liveness"), field_path(where, "liveness"), faults)
    # An agent that fell silent may still be at work: somebody has to notice.
    if has_agents and liveness is None:
        liveness = Liveness(AGENT_HEARTBEAT)
    task = read_value(TASK, given, where, "task", faults, DEFAULT_TASK)
    _check_stop_timeout(
        task.stop_timeout, options, field_path(where, "provider"), providers.get(provider), faults
    )
    approval = read_value(APPROVAL, given, where, "approval", faults, DEFAULT_APPROVAL)
    scaling = _read_scaling(
        given.get("scaling"),
        field_path(where, "scaling"),
        members,
        provider,
        providers.get(provider),
        faults,
    )
    if members.labels and scaling is None:
        what = (
            "These labels are for members that are made as demand wants them, and here they come "
            "and go by hand."
        )
        faults.add(
            field_path(where, "members.labels"),
            what,
            "Give each member its labels, or add scaling.",
        )
    roll = _read_roll(
        given.get("roll"), field_path(where, "roll"), provider, providers.get(provider), faults
    )
    priority = read_mapping(
        given.get("priority") or {}, field_path(where, "priority"), ("max",), faults
    )
    drain = read_mapping(given.get("drain") or {}, field_path(where, "drain"), ("limit",), faults)
    group = read_text(given, where, "group", faults, 63)
    description = read_text(given, where, "description", faults, 500)
    top_priority = read_integer(priority, field_path(where, "priority"), "max", faults, 0, 99, 0)
    drain_limit = (
        read_duration(
            drain, field_path(where, "drain"), "limit", faults, SECOND, DAY, DEFAULT_DRAIN
        )
        or DEFAULT_DRAIN
    )
    if faults.found or layout is None:
        return None, faults.found
    return PoolSpec(
        name=name, layout=layout, group=group, description=description, provider=provider,
        options=options, min_members=members.low, max_members=members.high, placement=placement,
        lease=lease, liveness=liveness, top_priority=top_priority, drain_limit=drain_limit,
        declared=members.declared, approval=approval, task=task, scaling=scaling,
        member_labels=members.labels, roll=roll,
    ), []  # fmt: skip


def _check_stop_timeout(
    seconds: float,
    options: Mapping[str, Any],
    where: str,
    reader: OptionReader | None,
    faults: Faults,
) -> None:
    """Where the provider kills a member after some time, an apply that is ended needs to be done
    before. What is stored is not checked.
    """
    field_of, most = getattr(reader, "stop_limit", lambda options: ("", None))(options)
    if most is not None and most < seconds + STOP_MARGIN:
        what = (
            f"A member has {format_duration(most)} to end, and an apply may need "
            f"{format_duration(seconds)} (task.stop_timeout)."
        )
        faults.add(
            field_path(where, field_of),
            what,
            f"Give {format_duration(seconds + STOP_MARGIN)} at least, or "
            "shorten task.stop_timeout.",
        )


def _read_scaling(
    value: Any,
    where: str,
    members: "_Members",
    provider: str,
    reader: OptionReader | None,
    faults: Faults,
) -> Scaling | None:
    """Only who makes members may have more of them made. What is stored was found fit before:
    its reader does not say.
    """
    if value is None:
        return None
    if getattr(reader, "is_owner", True) is False:
        what = (
            f"The provider {provider} does not make its members, so their number can't "
            "follow demand."
        )
        faults.add(
            where,
            what,
            "Leave scaling out and declare members, or use a provider that makes them, like local.",
        )
    if members.declared:
        what = "Members are declared one by one, so their number can't follow demand."
        faults.add(where, what, "Leave members.list out, or scaling.")
    return read_scaling(
        value,
        where,
        faults,
        low=members.low,
        high=members.high,
        own=getattr(reader, "policies", None),
    )


def _read_roll(
    value: Any, where: str, provider: str, reader: OptionReader | None, faults: Faults
) -> RollSpec:
    """Only who makes members can make them anew."""
    if value is not None and getattr(reader, "is_owner", True) is False:
        what = f"The provider {provider} does not make its members, so it can't renew them."
        faults.add(where, what, "Leave roll out, or use a provider that makes them, like local.")
    found = None if value is None else ROLL.read(value, where, faults)
    return found or DEFAULT_ROLL


def _read_layout(value: Any, where: str, faults: Faults, *, has_agents: bool) -> Layout | None:
    """Agents do tasks: without a word they have the shipped layout, and one in which no slot
    takes a task is none for them.
    """
    if value is None and has_agents:
        return layouts.tasks(AGENT_SLOTS)
    layout = read_layout(value, where, faults)
    if has_agents and layout is not None and not set(layouts.kinds(layout)) & TASK_KINDS:
        faults.add(
            where,
            "Agents do tasks, and no slot here takes one.",
            f"Write [{', '.join(AGENT_SLOTS)}].",
        )
    return layout


@dataclass(frozen=True, slots=True)
class _Members:
    low: int
    high: int
    declared: tuple[MemberSpec, ...] | None
    labels: Mapping[str, str]


def _read_provider(
    value: Any, where: str, providers: Mapping[str, OptionReader], faults: Faults
) -> tuple[str, Mapping[str, Any]]:
    if isinstance(value, Mapping):
        kind = value.get("kind")
        place = field_path(where, "kind")
        options = {k: v for k, v in value.items() if k != "kind"}
    else:
        kind, place, options = value, where, {}
    if kind is None:
        faults.add(
            place, "It is not said which provider.", f"Known: {', '.join(sorted(providers))}."
        )
        return "", {}
    if not isinstance(kind, str) or kind not in providers:
        faults.add(
            place, f"{show_value(kind)} is not a provider here.", suggest_names(kind, providers)
        )
        return "", {}
    return kind, providers[kind](options, where, faults)


def _read_members(value: Any, where: str, layout: Layout | None, faults: Faults) -> _Members:
    given = read_mapping(
        {} if value is None else value, where, ("min", "max", "list", "labels"), faults
    )
    declared = (
        None
        if given.get("list") is None
        else tuple(read_members(given["list"], field_path(where, "list"), layout, faults))
    )
    low = read_integer(given, where, "min", faults, 0, MOST_MEMBERS, 0)
    high = read_integer(given, where, "max", faults, 0, MOST_MEMBERS)
    if high is None:  # left out: room for those that are declared
        high = max(DEFAULT_MAX_MEMBERS, low, len(declared or ()))
    if low > high:
        faults.add(
            field_path(where, "min"),
            f"The least is {low}, the most {high}.",
            "Lower min or raise max.",
        )
    if declared is not None and len(declared) > high:
        faults.add(
            field_path(where, "list"),
            f"{len(declared)} members are declared, at most {high} are allowed.",
            "Raise members.max.",
        )
    return _Members(
        low, high, declared, read_labels(given.get("labels"), field_path(where, "labels"), faults)
    )


def read_members(value: Any, where: str, layout: Layout | None, faults: Faults) -> list[MemberSpec]:
    """Declared members. Without a layout (it had a fault) what depends on it is not looked at."""
    if not isinstance(value, list):
        faults.add(where, "This is not a list of members.", "Write it like [{name: a}, {name: b}].")
        return []
    found: list[MemberSpec] = []
    names: dict[str, int] = {}
    for i, item in enumerate(value):
        member = read_member(item, f"{where}[{i}]", layout, faults)
        if member.name and member.name in names:
            faults.add(
                f"{where}[{i}].name",
                f"{member.name} is there twice, also as {where}[{names[member.name]}].",
                "Name each once.",
            )
        names.setdefault(member.name, i)
        found.append(member)
    if layout is not None and layout.ports is not None:
        _check_apart(found, where, layout, faults)
    return found


def read_member(value: Any, where: str, layout: Layout | None, faults: Faults) -> MemberSpec:
    given = read_mapping(
        {"name": value} if isinstance(value, str) else value, where, MEMBER_FIELDS, faults
    )
    if not isinstance(value, str | Mapping):
        return MemberSpec(name="")
    name = read_name(
        given.get("name"), field_path(where, "name"), faults, MEMBER_NAME, MEMBER_NAME_RULE
    )
    labels = read_labels(given.get("labels"), field_path(where, "labels"), faults)
    external_id = read_text(given, where, "external_id", faults, 255)
    own = NO_OWN_SLOTS if layout is None else read_own_slots(given, where, layout, faults)
    if layout is not None and not layouts.slots_of(layout, own):
        faults.add(
            where,
            "This member would offer no slot.",
            "Raise slots.quota, or leave out ports and foreign.",
        )
    return MemberSpec(name=name, labels=labels, external_id=external_id, own=own)


def _check_apart(members: list[MemberSpec], where: str, layout: Layout, faults: Faults) -> None:
    """Two members on one load balancer never share a port. The database insists; here it
    gets words.
    """
    by_outside: dict[str, list[tuple[int, int, int]]] = {}
    for i, member in enumerate(members):
        span = layouts.ports_of(layout, member.own)
        if not member.external_id or span is None:
            continue
        for first, last, other in by_outside.get(member.external_id, []):
            if span[0] <= last and first <= span[1]:
                what = (
                    f"{span[0]}-{span[1]} on {member.external_id} overlaps {first}-{last} of "
                    f"{where}[{other}]."
                )
                faults.add(f"{where}[{i}].ports", what, "Give each ports of its own.")
                break
        by_outside.setdefault(member.external_id, []).append((*span, i))


def _read_lease(value: Any, where: str, faults: Faults) -> LeaseSpec:
    given = read_mapping(
        {} if value is None else value, where, ("acknowledge", "heartbeat", "hold"), faults
    )
    lease = LeaseSpec(
        acknowledge=read_duration(given, where, "acknowledge", faults, SECOND, DAY),
        heartbeat=read_duration(given, where, "heartbeat", faults, SECOND, DAY),
        hold=read_duration(given, where, "hold", faults, SECOND, 365 * DAY),
    )
    for name in ("acknowledge", "heartbeat"):
        seconds = getattr(lease, name)
        if seconds is not None and lease.hold is not None and seconds >= lease.hold:
            faults.add(
                field_path(where, name),
                f"{given[name]} is not shorter than hold, {given['hold']}.",
                "It would never count: shorten it.",
            )
    return lease


def _read_liveness(value: Any, where: str, faults: Faults) -> Liveness | None:
    if value is None:
        return None
    given = read_mapping(value, where, ("heartbeat", "lost"), faults, required=("heartbeat",))
    heartbeat = read_duration(given, where, "heartbeat", faults, SECOND, DAY)
    lost: float | None = None
    if given.get("lost") != NEVER:
        lost = read_duration(given, where, "lost", faults, SECOND, 30 * DAY, DEFAULT_LOST)
    return None if heartbeat is None else Liveness(heartbeat, lost)
