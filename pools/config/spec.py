"""The configuration of a pool, as a file, the API and the form have it: its fields, their parser
and the canonical form. Pure.

`read_pool` returns the spec and every fault; `parse_pool` raises all faults together. `pool.spec`
stores the canonical form (`PoolSpec.as_stored`) with shorthands and defaults written out, so that
two spellings of one configuration do not differ. `pool_schema` is the JSON Schema for editors.
"""

import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from pools.config import layout as layouts
from pools.config.approval_spec import APPROVAL, ApprovalSpec
from pools.config.approval_spec import DEFAULT as DEFAULT_APPROVAL
from pools.config.backend_spec import BACKENDS, CERTIFICATES, BackendRules
from pools.config.drift_spec import DEFAULT as DEFAULT_DRIFT
from pools.config.drift_spec import DRIFT, DriftRules
from pools.config.durations import DAY, MINUTE, SECOND, format_duration
from pools.config.fields import Fields, Object, Option, fields_of, option, required
from pools.config.layout import NO_OWN_SLOTS, Layout, OwnSlots
from pools.config.layout_spec import OWN_FIELDS, LayoutType, read_own_slots
from pools.config.parsing import (
    Choice,
    Described,
    Duration,
    Faults,
    Integer,
    Pattern,
    Schema,
    Text,
    field_path,
    labels,
    show_value,
    suggest_names,
)
from pools.config.placement import DEFAULT_PLACEMENT, PLACEMENTS
from pools.config.roll_spec import DEFAULT as DEFAULT_ROLL
from pools.config.roll_spec import ROLL, RollSpec
from pools.config.scaling_spec import (
    MOST_MEMBERS,
    ReadOptions,
    Scaling,
    check_limits,
    read_scaling,
    scaling_schema,
)
from pools.config.task_spec import DEFAULT as DEFAULT_TASK
from pools.config.task_spec import TASK, TaskSpec
from project.kernel.errors import FieldError, Invalid

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

DEFAULT_MAX_MEMBERS = 10
MOST_COST = 2**31 - 1  # as for a pod's controller.kubernetes.io/pod-deletion-cost
STOP_MARGIN = 1 * MINUTE  # to kill a process that ignores SIGINT, and to report
AGENT_HEARTBEAT = 2 * MINUTE
AGENT_SLOTS = ("any", "plan", "plan")
TASK_KINDS = {kind for kinds in layouts.TASKS.values() for kind in kinds}


@dataclass(frozen=True, slots=True)
class OptionReader:
    """What the configuration needs to know of a provider. The defaults are for a stored
    configuration: its options, policy and rules across fields were checked before.
    """

    # Parses the options (all of `provider:` but its kind) and returns them in canonical form.
    read: ReadOptions = lambda options, where, faults: dict(options)
    schema: Callable[[], Schema] = dict
    has_agents: bool = False  # members run agents; see `turns_agents_off`
    is_owner: bool = True  # the provider creates the members
    # The option that sets after how many seconds a member that must end is killed, and its value.
    stop_limit: Callable[[Mapping[str, Any]], tuple[str, float | None]] = lambda options: ("", None)
    policies: Mapping[str, ReadOptions] | None = None  # custom scaling policies; None: any
    # Adds the faults of a layout that the provider cannot offer.
    check_layout: Callable[[Layout, Faults], None] = lambda layout, faults: None


def turns_agents_off(options: Mapping[str, object]) -> bool:
    """Whether a pool with these provider options says `agent: false`: its members run no agent."""
    return options.get("agent") is False


@dataclass(frozen=True, slots=True)
class MemberSpec:
    """A member that the configuration declares."""

    name: str = required(Pattern(MEMBER_NAME, MEMBER_NAME_RULE), "Name of the member.")
    labels: Mapping[str, str] = option(labels(), {}, "Labels of the member.")
    external_id: str = option(Text(255), "", "Name of the member in the outside system.")
    deletion_cost: int = option(
        Integer(-MOST_COST, MOST_COST),
        0,
        "Among equal idle members, scaling removes the one with the lowest cost first.",
    )
    own: OwnSlots = NO_OWN_SLOTS

    def own_as_stored(self) -> dict[str, Any]:
        """Only the slots, ports and foreign listeners that differ from the pool's."""
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
        config = fields_of(MemberSpec).write(self) | self.own_as_stored()
        if not self.deletion_cost:
            del config["deletion_cost"]
        return config


MEMBER_FIELDS = Fields({**fields_of(MemberSpec), **OWN_FIELDS})


@dataclass(frozen=True, slots=True)
class LeaseSpec:
    """How long a claim may stay silent, in seconds; None: not required."""

    acknowledge: float | None = option(
        Duration(SECOND, DAY), None, "A claim that is not acknowledged in time loses its slot."
    )
    heartbeat: float | None = option(
        Duration(SECOND, DAY), None, "A claim that is silent for longer loses its slot."
    )
    hold: float | None = option(
        Duration(SECOND, 365 * DAY), None, "A claim loses its slot after this time."
    )


def _check_lease(lease: LeaseSpec, given: Collection[str], where: str, faults: Faults) -> LeaseSpec:
    for name in ("acknowledge", "heartbeat"):
        seconds = getattr(lease, name)
        if seconds is not None and lease.hold is not None and seconds >= lease.hold:
            longest = format_duration(lease.hold)
            fault = f"{format_duration(seconds)} is not shorter than hold, {longest}."
            faults.add(field_path(where, name), fault, "It would never count: shorten it.")
    return lease


@dataclass(frozen=True, slots=True)
class Liveness:
    """How long a member may stay silent."""

    heartbeat: float = required(
        Duration(SECOND, DAY),
        "A member that is silent for longer is offline and takes no new claims.",
    )
    # None: a member is never lost by silence alone.
    lost: float | None = option(
        Duration(SECOND, 30 * DAY, "never"),
        10 * MINUTE,
        "The claims of a member that is offline for so long are lost.",
    )


@dataclass(frozen=True, slots=True)
class PoolSpec:
    name: str = required(Pattern(NAME, NAME_RULE), "Name of the pool. It cannot be changed later.")
    group: str = option(Text(63), "", "Heading of the pool on the overview.")
    description: str = option(Text(500), "", "Description of the pool, for people.")
    provider: str = option(Described({}), "static", "What creates the members, with its options.")
    layout: Layout = option(
        LayoutType(),
        layouts.tasks(AGENT_SLOTS),
        "Slots of each member: a number, task slots, node, ports, or classes. Required, unless "
        "members run the Berth agent.",
        path="slots",
    )
    min_members: int = option(
        Integer(0, MOST_MEMBERS), 0, "Minimum number of members.", path="members.min"
    )
    max_members: int = option(
        Integer(0, MOST_MEMBERS),
        DEFAULT_MAX_MEMBERS,
        "Maximum number of members.",
        path="members.max",
    )
    # None: the configuration does not list its members.
    declared: tuple[MemberSpec, ...] | None = option(
        Described(
            {
                "type": "array",
                "items": {"anyOf": [{"type": "string"}, MEMBER_FIELDS.schema()]},
            }
        ),
        None,
        "The members, each with its name or as an object.",
        path="members.list",
    )
    member_labels: Mapping[str, str] = option(
        labels(), {}, "Labels of members that scaling creates.", path="members.labels"
    )
    placement: str = option(
        Choice(PLACEMENTS), DEFAULT_PLACEMENT, "Order in which free slots are handed out."
    )
    lease: LeaseSpec = option(
        Object(LeaseSpec, finish=_check_lease),
        LeaseSpec(),
        "What the pool requires of the holder of a claim.",
    )
    liveness: Liveness | None = option(
        Object(Liveness), None, "Without it, members are assumed to be alive."
    )
    top_priority: int = option(
        Integer(0, 99), 0, "Highest priority that a claimant may set.", path="priority.max"
    )
    drain_limit: float = option(
        Duration(SECOND, DAY), 10 * MINUTE, "Default deadline of a drain.", path="drain.limit"
    )
    approval: ApprovalSpec = option(APPROVAL, DEFAULT_APPROVAL, "Rules for the approval of plans.")
    task: TaskSpec = option(
        TASK, DEFAULT_TASK, "Limits of a task, in pools whose members run the Berth agent."
    )
    # None: claims cannot set backends.
    backends: BackendRules | None = option(
        BACKENDS, None, "Where the listeners of a pool of ports may send traffic."
    )
    certificates: tuple[str, ...] = option(
        CERTIFICATES,
        (),
        "Certificates that claims may name, beside the pool's own: ARNs or ids at the provider.",
    )
    drift: DriftRules = option(
        DRIFT, DEFAULT_DRIFT, "Repairs of differences outside that need no person."
    )
    # None: operators add and remove members.
    scaling: Scaling | None = option(
        Described({}),
        None,
        "How the number of members follows demand, if the provider creates them.",
    )
    roll: RollSpec = option(
        ROLL, DEFAULT_ROLL, "Renewal of members that were made from an older configuration."
    )
    options: Mapping[str, Any] = field(default_factory=dict)  # of the provider

    @property
    def allowed_certificates(self) -> frozenset[str]:
        """The certificates that claims may name."""
        own = self.options.get("certificate")
        return frozenset(self.certificates) | ({own} if isinstance(own, str) else frozenset())

    def as_stored(self) -> dict[str, Any]:
        """The canonical form. Name and members are stored in rows of their own."""
        stored = POOL.write(replace(self, declared=None))
        del stored["name"]
        stored["provider"] = {"kind": self.provider, **self.options}
        if self.scaling is not None:
            stored["scaling"] = self.scaling.as_config()
        return stored

    def as_config(self) -> dict[str, Any]:
        """The whole configuration, as in a pool file."""
        stored = self.as_stored()
        if self.declared is not None:
            stored["members"]["list"] = [m.as_config() for m in self.declared]
        if not self.options:
            stored["provider"] = self.provider
        return {"kind": "Pool", "name": self.name, **stored}


POOL = fields_of(PoolSpec)
FIELDS = Fields({"kind": Option(Choice(("Pool",), "a pool"), "Always Pool.", "Pool"), **POOL})


def pool_schema(providers: Mapping[str, OptionReader]) -> Schema:
    """JSON Schema (draft 2020-12) of a configuration, for these providers."""
    kinds: list[Schema] = [{"type": "string", "enum": list(providers)}]
    own: dict[str, Any] = {}
    for kind, reader in providers.items():
        schema = reader.schema()
        properties = {"kind": {"type": "string", "enum": [kind]}, **schema.get("properties", {})}
        needed = ["kind", *schema.get("required", ())]
        kinds.append(schema | {"type": "object", "properties": properties, "required": needed})
        own |= reader.policies or {}
    special: dict[str, Schema] = {"provider": {"anyOf": kinds}, "scaling": scaling_schema(own)}
    return Fields(
        {
            path: replace(each, kind=Described(special[path])) if path in special else each
            for path, each in FIELDS.items()
        }
    ).schema()


def parse_pool(config: object, providers: Mapping[str, OptionReader]) -> PoolSpec:
    spec, faults = read_pool(config, providers)
    if spec is None:
        raise Invalid(fields=faults)
    return spec


def read_pool(
    config: object, providers: Mapping[str, OptionReader]
) -> tuple[PoolSpec | None, list[FieldError]]:
    """The spec and every fault, in the order of the fields. There is a spec only if there is no
    fault.
    """
    faults = Faults()
    spec = _Parser(providers, faults).read(config)
    order = {name: i for i, name in enumerate(FIELDS.tree)}

    def position(fault: FieldError) -> int:
        name = re.split(r"[.\[]", fault.field)[0]
        return order.get(name, -1 if fault.field else len(order))

    return None if faults.found else spec, sorted(faults.found, key=position)


@dataclass(slots=True)
class _Parser:
    """Parses the fields of one pool that depend on each other."""

    providers: Mapping[str, OptionReader]
    faults: Faults
    provider: str = ""
    options: Mapping[str, Any] = field(default_factory=dict)
    layout: Layout | None = None
    has_agents: bool = False
    reader: OptionReader = OptionReader()

    def read(self, config: object) -> PoolSpec | None:
        if not isinstance(config, Mapping):
            FIELDS.read(config, "", self.faults)
            return None
        found = FIELDS.read(
            config,
            "",
            self.faults,
            {
                "provider": self.read_provider,
                "slots": self.read_layout,
                "members.list": self.read_list,
            },
        )
        found.pop("kind", None)
        scaling = found.pop("scaling", None)  # needs the limits
        # The placeholders stand for fields with a fault.
        found.setdefault("name", "")
        found["layout"] = self.layout or layouts.plain(1)
        spec = PoolSpec(**found, options=self.options)
        if "max_members" not in found:  # room for the declared members
            highest = max(DEFAULT_MAX_MEMBERS, spec.min_members, len(spec.declared or ()))
            spec = replace(spec, max_members=highest)
        # A silent agent may still run its task, so its silence must be noticed.
        if self.has_agents and spec.liveness is None:
            spec = replace(spec, liveness=Liveness(AGENT_HEARTBEAT))
        self.check(spec, is_scaled=scaling is not None, is_rolled="roll" in found)
        if scaling is None:
            return spec
        low, high = spec.min_members, spec.max_members
        own = self.reader.policies
        read = read_scaling(scaling, "scaling", self.faults, low=low, high=high, own=own)
        return replace(spec, scaling=read)

    def read_provider(self, value: object, where: str, faults: Faults) -> str:
        kind, place, options = "static" if value is None else value, where, {}
        if isinstance(value, Mapping):
            kind, place = value.get("kind"), field_path(where, "kind")
            options = {k: v for k, v in value.items() if k != "kind"}
        if kind is None:
            way_out = f"Known: {', '.join(sorted(self.providers))}."
            faults.add(place, "The kind of the provider is missing.", way_out)
        elif not isinstance(kind, str) or kind not in self.providers:
            fault = f"{show_value(kind)} is not a provider here."
            faults.add(place, fault, suggest_names(kind, self.providers))
        else:
            self.provider, self.reader = kind, self.providers[kind]
            self.options = self.reader.read(options, where, faults)
            self.has_agents = self.reader.has_agents and not turns_agents_off(self.options)
        return self.provider

    def read_layout(self, value: object, where: str, faults: Faults) -> Layout | None:
        """Agents run tasks: without a layout they have the default one, and a layout without a
        slot for tasks is a fault.
        """
        if value is None and self.has_agents:
            self.layout = layouts.tasks(AGENT_SLOTS)
            return self.layout
        self.layout = LayoutType().read(value, where, faults)
        if self.layout is None:
            return None
        self.reader.check_layout(self.layout, faults)
        takes_tasks = bool(set(layouts.kinds(self.layout)) & TASK_KINDS)
        if turns_agents_off(self.options) and takes_tasks:
            faults.add(
                where,
                "These slots take tasks, and provider.agent: false leaves no agent to run them.",
                "Write the number of slots of a member, like slots: 2, or leave provider.agent "
                "out.",
            )
        if self.has_agents and not takes_tasks:
            faults.add(
                where,
                "Agents do tasks, and no slot here takes one.",
                f"Write [{', '.join(AGENT_SLOTS)}].",
            )
        return self.layout

    def read_list(self, value: object, where: str, faults: Faults) -> tuple[MemberSpec, ...] | None:
        return None if value is None else tuple(read_members(value, where, self.layout, faults))

    def check(self, spec: PoolSpec, *, is_scaled: bool, is_rolled: bool) -> None:
        """Rules across fields."""
        add = self.faults.add
        low, high, declared = spec.min_members, spec.max_members, spec.declared or ()
        if spec.name in RESERVED:
            add("name", f"{spec.name} is the address of a page.", "Choose another name.")
        check_limits(low, high, "members", self.faults)
        if spec.backends is not None and self.layout is not None and self.layout.ports is None:
            add("backends", "The slots of this pool are no ports.", "Leave it out.")
        if spec.certificates and self.layout is not None and self.layout.ports is None:
            add("certificates", "The slots of this pool are no ports.", "Leave it out.")
        if len(declared) > high:
            fault = f"{len(declared)} members are declared, at most {high} are allowed."
            add("members.list", fault, "Raise members.max.")
        if spec.member_labels and not is_scaled:
            add(
                "members.labels",
                "These labels are for members that scaling creates, and this pool has no scaling.",
                "Give each member its labels, or add scaling.",
            )
        if is_scaled and declared:
            add(
                "scaling",
                "Members are declared one by one, so their number can't follow demand.",
                "Leave members.list out, or scaling.",
            )
        if not self.reader.is_owner:
            does_not = f"The provider {self.provider} does not make its members, so"
            makes = "use a provider that makes them, like local."
            if is_scaled:
                way_out = f"Leave scaling out and declare members, or {makes}"
                add("scaling", f"{does_not} their number can't follow demand.", way_out)
            if is_rolled:
                add("roll", f"{does_not} it can't renew them.", f"Leave roll out, or {makes}")
        self.check_stop_timeout(spec.task.stop_timeout)

    def check_stop_timeout(self, seconds: float) -> None:
        """An apply that is stopped must end before the provider kills its member."""
        name, most = self.reader.stop_limit(self.options)
        if most is not None and most < seconds + STOP_MARGIN:
            fault = (
                f"A member has {format_duration(most)} to end, and an apply may need "
                f"{format_duration(seconds)} (task.stop_timeout)."
            )
            needed = format_duration(seconds + STOP_MARGIN)
            way_out = f"Give {needed} at least, or shorten task.stop_timeout."
            self.faults.add(f"provider.{name}", fault, way_out)


def read_members(
    value: object, where: str, layout: Layout | None, faults: Faults
) -> list[MemberSpec]:
    """Declared members. A layout of None has a fault: fields that depend on it are not checked."""
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


def read_member(value: object, where: str, layout: Layout | None, faults: Faults) -> MemberSpec:
    given = {"name": value} if isinstance(value, str) else value
    found = MEMBER_FIELDS.read(given, where, faults)
    if not isinstance(given, Mapping):
        return MemberSpec(name="")
    declared = {name: found.pop(name) for name in OWN_FIELDS if name in found}
    own = NO_OWN_SLOTS if layout is None else read_own_slots(declared, where, layout, faults)
    if layout is not None and not layouts.slots_of(layout, own):
        faults.add(
            where,
            "This member would offer no slot.",
            "Raise slots.quota, or leave out ports and foreign.",
        )
    return MemberSpec(**{"name": ""} | found, own=own)


def _check_apart(members: list[MemberSpec], where: str, layout: Layout, faults: Faults) -> None:
    """Two members on one load balancer never share a port. The database checks the same, without
    a text for people.
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
