"""`scaling:` of a pool's configuration: the policy by which the number of members follows demand,
its pace, and windows of the week with other limits or a freeze. Pure.
"""

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import time
from typing import Any
from zoneinfo import ZoneInfo

from pools.config.durations import DAY, SECOND
from pools.config.fields import Fields, Option
from pools.config.parsing import (
    Duration,
    Faults,
    Flag,
    Integer,
    ListOf,
    Percent,
    Schema,
    Text,
    ValueType,
    field_path,
    kind_of,
    show_value,
    suggest_names,
)
from pools.scaling import (
    Fixed,
    OnDemand,
    Policy,
    RenamedPolicy,
    ScalingPace,
    Utilisation,
    Warm,
    Window,
)
from pools.scaling.policies import ONE_BY_ONE
from pools.scaling.schedule import DAYS

MOST_MEMBERS = 100_000
NEVER, ALL = "never", "all"
CLOCK = re.compile(r"(\d{1,2}):(\d{2})")

# Parses the options of a provider or of a custom policy and returns them in canonical form.
ReadOptions = Callable[[Mapping[str, Any], str, Faults], Mapping[str, Any]]


class Clock(ValueType[time]):
    def read(self, value: object, where: str, faults: Faults) -> time | None:
        # YAML reads 22:00 without quotes as 22 * 60.
        if isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= 24 * 60:
            value = f"{value // 60}:{value % 60:02}"
        match = CLOCK.fullmatch(value) if isinstance(value, str) else None
        if match and int(match[1]) * 60 + int(match[2]) <= 24 * 60 and int(match[2]) < 60:
            return time(int(match[1]) % 24, int(match[2]))
        faults.add(where, f"{show_value(value)} is not a time of day.", 'Write it like "08:30".')
        return None

    def write(self, value: time) -> object:
        return f"{value:%H:%M}"

    def schema(self) -> Schema:
        clock = {"type": "string", "pattern": f"^{CLOCK.pattern}$"}
        return {"anyOf": [clock, {"type": "integer", "minimum": 0, "maximum": 24 * 60}]}

    @property
    def hint(self) -> str:
        return 'Like "08:30", in quotes.'


class Days(ValueType[tuple[str, ...]]):
    """mon-fri, or [sat, sun]."""

    def read(self, value: object, where: str, faults: Faults) -> tuple[str, ...] | None:
        parts = value.split(",") if isinstance(value, str) else value
        chosen: set[str] = set()
        for part in parts if isinstance(parts, list) else [parts]:
            first, dash, last = (
                part.strip().lower().partition("-") if isinstance(part, str) else ("", "", "")
            )
            ends = [day.strip()[:3] for day in ((first, last) if dash else (first,))]
            if not all(end in DAYS for end in ends):
                fault = f"{show_value(part)} is not a day of the week."
                faults.add(where, fault, "Write mon-fri, or [sat, sun].")
                return None
            i, j = DAYS.index(ends[0]), DAYS.index(ends[-1])
            chosen |= set(DAYS[i : j + 1] if i <= j else DAYS[i:] + DAYS[: j + 1])
        return tuple(day for day in DAYS if day in chosen) or DAYS

    def write(self, value: tuple[str, ...]) -> object:
        return None if value == DAYS else list(value)

    def schema(self) -> Schema:
        return {"anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}}]}

    @property
    def hint(self) -> str:
        return "Like mon-fri, or [sat, sun]."


class Zone(ValueType[str]):
    def read(self, value: object, where: str, faults: Faults) -> str | None:
        try:
            if isinstance(value, str):
                return ZoneInfo(value).key
        except (KeyError, ValueError, OSError):
            pass  # a fault
        fault = f"{show_value(value)} is not a time zone."
        faults.add(where, fault, "Use a name like Europe/Berlin or UTC.")
        return None

    def schema(self) -> Schema:
        return {"type": "string"}


FREEZE_FIELDS = Fields(
    {
        "from": Option(Clock(), "Start of the window.", is_required=True, attribute="start"),
        "to": Option(
            Clock(),
            "End of the window; on the next day if not after its start.",
            is_required=True,
            attribute="end",
        ),
        "zone": Option(Zone(), "Time zone.", "UTC"),
        "days": Option(Days(), "Days on which the window starts. Default: every day.", DAYS),
        "name": Option(Text(63), "Name of the window, for people.", ""),
    }
)
SCHEDULE_FIELDS = Fields(
    {
        **FREEZE_FIELDS,
        "min": Option(Integer(0, MOST_MEMBERS), "Minimum members in the window.", attribute="low"),
        "max": Option(Integer(0, MOST_MEMBERS), "Maximum members in the window.", attribute="high"),
    }
)


@dataclass(frozen=True, slots=True)
class WindowType(ValueType[Window]):
    limits: tuple[int, int] | None  # of the pool; None: the window has no limits of its own

    @property
    def fields(self) -> Fields:
        return FREEZE_FIELDS if self.limits is None else SCHEDULE_FIELDS

    def read(self, value: object, where: str, faults: Faults) -> Window | None:
        before = faults.count
        found = {"zone": "UTC"} | self.fields.read(value, where, faults)
        if self.limits is not None:
            low, high = found.setdefault("low", self.limits[0]), self.limits[1]
            high = found.setdefault("high", high)
            if high > self.limits[1]:
                faults.add(
                    field_path(where, "max"),
                    f"{high} is more than the pool ever has, {self.limits[1]}.",
                    "Lower it, or raise members.max.",
                )
            check_limits(low, high, where, faults)
        return None if faults.count > before else Window(**found)

    def write(self, value: Window) -> object:
        return self.fields.write(value)

    def schema(self) -> Schema:
        return self.fields.schema()


def check_limits(low: int, high: int, where: str, faults: Faults) -> None:
    if low > high:
        faults.add(
            field_path(where, "min"),
            f"The least is {low}, the most {high}.",
            "Lower min or raise max.",
        )


def _windows(limits: tuple[int, int] | None) -> ListOf[Window]:
    example = '[{from: "22:00", to: "06:00", zone: Europe/Berlin}]'
    return ListOf(WindowType(limits), "windows", 50, example)


COMMON = Fields(
    {
        "cooldown.up": Option(
            Duration(0.0, DAY), "Time between a change and the next increase.", attribute="pace.up"
        ),
        "cooldown.down": Option(
            Duration(0.0, DAY),
            "Time between a change and the next decrease.",
            attribute="pace.down",
        ),
        "step.up": Option(
            Integer(1, MOST_MEMBERS, ALL),
            "Most members that one decision adds.",
            attribute="pace.step_up",
        ),
        "step.down": Option(
            Integer(1, MOST_MEMBERS, ALL),
            "Most members that one decision removes.",
            attribute="pace.step_down",
        ),
        "schedule": Option(
            _windows((0, MOST_MEMBERS)),
            "Windows of the week with other limits; the first open window counts.",
        ),
        "freeze": Option(
            _windows(None),
            "Windows of the week in which no slot is handed out and idle members go.",
        ),
    }
)
BUILT_IN: Mapping[str, Fields] = {
    "fixed": Fields({"size": Option(Integer(0, MOST_MEMBERS), "Number of members.")}),
    "utilisation": Fields(
        {
            "grow_above": Option(
                Percent(), "Adds a member above this percentage of slots in use.", 80.0
            ),
            "shrink_below": Option(
                Percent(), "Removes a member below this percentage of slots in use.", 20.0
            ),
            "idle_members": Option(
                Flag(), "Whether idle members go while slots of other members are in use.", False
            ),
        }
    ),
    "warm": Fields(
        {
            "max_idle": Option(
                Integer(0, MOST_MEMBERS), "Idle members to keep beside those in use.", 1
            )
        }
    ),
    "on_demand": Fields(
        {
            "idle_for": Option(
                Duration(SECOND, 30 * DAY, NEVER),
                "Removes a member that is idle for so long.",
                600.0,
            )
        }
    ),
}
CLASSES: Mapping[str, Callable[..., Policy]] = {
    "fixed": Fixed,
    "utilisation": Utilisation,
    "warm": Warm,
    "on_demand": OnDemand,
}


@dataclass(frozen=True, slots=True)
class Scaling:
    policy: str
    options: Mapping[str, Any] = field(default_factory=dict)
    pace: ScalingPace = ONE_BY_ONE
    schedule: tuple[Window, ...] = ()
    freeze: tuple[Window, ...] = ()

    def as_config(self) -> dict[str, Any]:
        return {"policy": self.policy, **self.options, **COMMON.write(self)}


def build_policy(scaling: Scaling, own: Mapping[str, Callable[..., Policy]]) -> Policy:
    """`own`: the classes of custom policies. Raises KeyError if the policy is none of them."""
    if scaling.policy not in BUILT_IN:
        policy = own[scaling.policy](pace=scaling.pace, **scaling.options)
        is_renamed = hasattr(policy, "wish") and not hasattr(policy, "find_target")
        return RenamedPolicy(policy) if is_renamed else policy
    options = BUILT_IN[scaling.policy].read(scaling.options, "", Faults())
    return CLASSES[scaling.policy](pace=scaling.pace, **options)


def read_scaling(
    value: object,
    where: str,
    faults: Faults,
    *,
    low: int,
    high: int,
    own: Mapping[str, ReadOptions] | None,
) -> Scaling | None:
    """`own`: readers of custom policies. None: the value is a stored configuration, and any policy
    is accepted.
    """
    given = {"policy": value} if isinstance(value, str) else value
    if not isinstance(given, Mapping):
        fault = f"This is {kind_of(given)}, not an object with fields."
        faults.add(where, fault, f"Known fields: {', '.join(sorted(['policy', *COMMON.tree]))}.")
        return None
    policy = given.get("policy")
    known = {*BUILT_IN, *(own or ())}
    if policy is None:
        way_out = f"Known: {', '.join(sorted(known))}."
        faults.add(field_path(where, "policy"), "The policy is missing.", way_out)
        return None
    if not isinstance(policy, str) or (policy not in known and own is not None):
        fault = f"{show_value(policy)} is not a policy here."
        faults.add(field_path(where, "policy"), fault, suggest_names(policy, known))
        return None
    schedule = replace(COMMON["schedule"], kind=_windows((low, high)))
    shared = Fields({**COMMON, "schedule": schedule})
    rest = {name: each for name, each in given.items() if name != "policy"}
    usual = ONE_BY_ONE
    if policy in BUILT_IN:
        fields, usual = BUILT_IN[policy], CLASSES[policy]().pace
        found = Fields({**fields, **shared}).read(rest, where, faults)
        if policy == "fixed":
            found.setdefault("size", max(low, min(1, high)))
        values = {name: found.get(name, fields[name].default) for name in fields}
        _check_options(policy, values, low, high, where, faults)
        options = {name: fields[name].kind.write(each) for name, each in values.items()}
    else:
        common = {name: rest.pop(name) for name in COMMON.tree if name in rest}
        options = rest if own is None else dict(own[policy](rest, where, faults))
        found = shared.read(common, where, faults)
    pace = ScalingPace(
        found.get("pace.up", usual.up),
        found.get("pace.down", usual.down),
        found.get("pace.step_up", usual.step_up),
        found.get("pace.step_down", usual.step_down),
    )
    return Scaling(policy, options, pace, found.get("schedule", ()), found.get("freeze", ()))


def _check_options(
    policy: str, values: Mapping[str, Any], low: int, high: int, where: str, faults: Faults
) -> None:
    if policy == "fixed" and not low <= values["size"] <= high:
        faults.add(
            field_path(where, "size"),
            f"{values['size']} is not between the least, {low}, and the most, {high}.",
            "Change it, or these.",
        )
    elif policy == "utilisation" and values["shrink_below"] >= values["grow_above"]:
        grow, shrink = values["grow_above"], values["shrink_below"]
        what = f"It would shrink below {shrink:g} % and grow above {grow:g} %."
        faults.add(field_path(where, "shrink_below"), what, "Make it smaller than grow_above.")


def scaling_schema(own: Iterable[str]) -> Schema:
    """`own`: names of custom policies. Any option of them is accepted."""
    names = [*BUILT_IN, *own]
    forms: list[Schema] = [{"type": "string", "enum": names}]
    for name in names:
        schema = Fields({**BUILT_IN.get(name, {}), **COMMON}).schema()
        policy = {"policy": {"type": "string", "enum": [name]}}
        schema["properties"] = policy | schema["properties"]
        schema |= {"required": ["policy"], "additionalProperties": name not in BUILT_IN}
        forms.append(schema)
    return {"anyOf": forms}
