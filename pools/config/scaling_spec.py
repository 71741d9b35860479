"""`scaling:` of a pool's configuration: by which policy its number of members follows demand,
how fast, at which hours otherwise. Pure.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import time
from typing import Any
from zoneinfo import ZoneInfo

from pools.config.durations import format_duration, parse_duration
from pools.config.parsing import (
    Faults,
    field_path,
    read_duration,
    read_flag,
    read_integer,
    read_mapping,
    read_text,
    show_value,
    suggest_names,
)
from pools.scaling import Fixed, OnDemand, Policy, ScalingPace, Utilisation, Warm, Window
from pools.scaling.policies import EVERYTHING_AT_ONCE, ON_DEMAND, ONE_BY_ONE, WARM
from pools.scaling.schedule import DAYS

COMMON = ("policy", "cooldown", "step", "schedule", "freeze")
WINDOW = ("from", "to", "days", "zone", "name")
BUILT_IN: Mapping[str, tuple[str, ...]] = {
    "fixed": ("size",),
    "utilisation": ("grow_above", "shrink_below", "idle_members"),
    "warm": ("max_idle",),
    "on_demand": ("idle_for",),
}
PACES = {
    "fixed": EVERYTHING_AT_ONCE,
    "utilisation": ONE_BY_ONE,
    "warm": WARM,
    "on_demand": ON_DEMAND,
}
SECOND, DAY = 1.0, 86400.0
MOST_MEMBERS = 100_000
MOST_WINDOWS = 50
NEVER, ALL = "never", "all"
CLOCK = re.compile(r"(\d{1,2}):(\d{2})")

# Reads the options of a policy of one's own and answers them in canonical form.
OptionReader = Callable[[Mapping[str, Any], str, Faults], Mapping[str, Any]]


@dataclass(frozen=True, slots=True)
class Scaling:
    policy: str
    options: Mapping[str, Any] = field(default_factory=dict)
    pace: ScalingPace = ONE_BY_ONE
    schedule: tuple[Window, ...] = ()
    freeze: tuple[Window, ...] = ()

    def as_config(self) -> dict[str, Any]:
        config: dict[str, Any] = {"policy": self.policy, **self.options}
        config["cooldown"] = {
            "up": format_duration(self.pace.up),
            "down": format_duration(self.pace.down),
        }
        config["step"] = {"up": self.pace.step_up or ALL, "down": self.pace.step_down or ALL}
        if self.schedule:
            config["schedule"] = [
                window_config(w) | {"min": w.low, "max": w.high} for w in self.schedule
            ]
        if self.freeze:
            config["freeze"] = [window_config(w) for w in self.freeze]
        return config


def build_policy(scaling: Scaling, own: Mapping[str, Callable[..., Policy]]) -> Policy:
    """`own`: the classes of those that are not built in. KeyError: it is not known
    here any more.
    """
    options, pace = dict(scaling.options), scaling.pace
    match scaling.policy:
        case "fixed":
            return Fixed(options["size"], pace)
        case "utilisation":
            return Utilisation(
                options["grow_above"], options["shrink_below"], options["idle_members"], pace
            )
        case "warm":
            return Warm(options["max_idle"], pace)
        case "on_demand":
            return OnDemand(
                None if options["idle_for"] == NEVER else parse_duration(options["idle_for"]), pace
            )
        case name:
            return own[name](pace=pace, **options)


def read_scaling(
    value: Any,
    where: str,
    faults: Faults,
    *,
    low: int,
    high: int,
    own: Mapping[str, OptionReader] | None,
) -> Scaling | None:
    """`own`: readers of other policies; None: what is stored was read before, whatever policies
    there are by now.
    """
    if value is None:
        return None
    given = {"policy": value} if isinstance(value, str) else value
    if not isinstance(given, Mapping):
        read_mapping(given, where, COMMON, faults)
        return None
    policy = given.get("policy")
    known = {*BUILT_IN, *(own or ())}
    if policy is None:
        faults.add(
            field_path(where, "policy"),
            "It is not said which policy.",
            f"Known: {', '.join(sorted(known))}.",
        )
        return None
    if not isinstance(policy, str) or (policy not in known and own is not None):
        faults.add(
            field_path(where, "policy"),
            f"{show_value(policy)} is not a policy here.",
            suggest_names(policy, known),
        )
        return None
    options = _read_options(policy, given, where, faults, low, high, own)
    pace = _read_pace(given, where, PACES.get(policy, ONE_BY_ONE), faults)
    schedule = _read_windows(
        given.get("schedule"), field_path(where, "schedule"), faults, limits=(low, high)
    )
    freeze = _read_windows(given.get("freeze"), field_path(where, "freeze"), faults, limits=None)
    return Scaling(policy, options, pace, schedule, freeze)


def _read_options(
    policy: str,
    given: Mapping[str, Any],
    where: str,
    faults: Faults,
    low: int,
    high: int,
    own: Mapping[str, OptionReader] | None,
) -> Mapping[str, Any]:
    if policy not in BUILT_IN:
        rest = {name: value for name, value in given.items() if name not in COMMON}
        return rest if own is None else dict(own[policy](rest, where, faults))
    read_mapping(given, where, (*COMMON, *BUILT_IN[policy]), faults)
    match policy:
        case "fixed":
            size = read_integer(
                given, where, "size", faults, 0, MOST_MEMBERS, max(low, min(1, high))
            )
            if not low <= size <= high:
                faults.add(
                    field_path(where, "size"),
                    f"{size} is not between the least, {low}, and the most, {high}.",
                    "Change it, or these.",
                )
            return {"size": size}
        case "utilisation":
            grow = _read_percent(given, where, "grow_above", faults, 80.0)
            shrink = _read_percent(given, where, "shrink_below", faults, 20.0)
            if shrink >= grow:
                what = f"It would shrink below {shrink:g} % and grow above {grow:g} %."
                faults.add(
                    field_path(where, "shrink_below"), what, "Make it smaller than grow_above."
                )
            return {
                "grow_above": grow,
                "shrink_below": shrink,
                "idle_members": read_flag(given, where, "idle_members", faults),
            }
        case "warm":
            return {"max_idle": read_integer(given, where, "max_idle", faults, 0, MOST_MEMBERS, 1)}
        case _:
            if given.get("idle_for") == NEVER:
                return {"idle_for": NEVER}
            seconds = read_duration(given, where, "idle_for", faults, SECOND, 30 * DAY, 600.0)
            return {"idle_for": format_duration(600.0 if seconds is None else seconds)}


def _read_percent(
    given: Mapping[str, Any], where: str, name: str, faults: Faults, default: float
) -> float:
    value = given.get(name)
    if value is None:
        return default
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= 100:
        faults.add(
            field_path(where, name),
            f"{show_value(value)} is not a percentage.",
            "Use a number from 0 to 100.",
        )
        return default
    return value


def _read_pace(
    given: Mapping[str, Any], where: str, default: ScalingPace, faults: Faults
) -> ScalingPace:
    cooldown = read_mapping(
        given.get("cooldown") or {}, field_path(where, "cooldown"), ("up", "down"), faults
    )
    step = read_mapping(given.get("step") or {}, field_path(where, "step"), ("up", "down"), faults)

    def wait(name: str, usual: float) -> float:
        found = read_duration(
            cooldown, field_path(where, "cooldown"), name, faults, 0.0, DAY, usual
        )
        return usual if found is None else found

    def count(name: str, usual: int) -> int:
        if step.get(name) == ALL:
            return 0
        found: int = read_integer(
            step, field_path(where, "step"), name, faults, 1, MOST_MEMBERS, usual
        )
        return found

    return ScalingPace(
        wait("up", default.up),
        wait("down", default.down),
        count("up", default.step_up),
        count("down", default.step_down),
    )


def _read_windows(
    value: Any, where: str, faults: Faults, *, limits: tuple[int, int] | None
) -> tuple[Window, ...]:
    if value is None:
        return ()
    if not isinstance(value, list) or len(value) > MOST_WINDOWS:
        faults.add(
            where,
            f"This is not a list of up to {MOST_WINDOWS} windows.",
            'Write [{from: "22:00", to: "06:00", zone: Europe/Berlin}].',
        )
        return ()
    found = (_read_window(item, f"{where}[{i}]", faults, limits) for i, item in enumerate(value))
    return tuple(window for window in found if window is not None)


def _read_window(
    value: Any, where: str, faults: Faults, limits: tuple[int, int] | None
) -> Window | None:
    fields = WINDOW if limits is None else (*WINDOW, "min", "max")
    before = len(faults.found)
    given = read_mapping(value, where, fields, faults, required=("from", "to"))
    start, end = (
        _read_clock(given.get(name), field_path(where, name), faults) for name in ("from", "to")
    )
    days = _read_days(given.get("days"), field_path(where, "days"), faults)
    zone = _read_zone(given.get("zone"), field_path(where, "zone"), faults)
    name = read_text(given, where, "name", faults, 63)
    low = high = None
    if limits is not None:
        low = read_integer(given, where, "min", faults, 0, MOST_MEMBERS, limits[0])
        high = read_integer(given, where, "max", faults, 0, MOST_MEMBERS, limits[1])
        if high > limits[1]:
            faults.add(
                field_path(where, "max"),
                f"{high} is more than the pool ever has, {limits[1]}.",
                "Lower it, or raise members.max.",
            )
        if low > high:
            faults.add(
                field_path(where, "min"),
                f"The least is {low}, the most {high}.",
                "Lower min or raise max.",
            )
    if len(faults.found) > before or start is None or end is None:
        return None
    return Window(start, end, zone, days, name, low, high)


def _read_clock(value: Any, where: str, faults: Faults) -> time | None:
    if value is None:
        return None
    # YAML reads 22:00 without quotes as 22 * 60.
    if isinstance(value, int) and not isinstance(value, bool):
        value = f"{value // 60}:{value % 60:02}"
    match = CLOCK.fullmatch(value) if isinstance(value, str) else None
    if match and int(match[1]) * 60 + int(match[2]) <= 24 * 60 and int(match[2]) < 60:
        return time(int(match[1]) % 24, int(match[2]))
    faults.add(where, f"{show_value(value)} is not a time of day.", 'Write it like "08:30".')
    return None


def _read_days(value: Any, where: str, faults: Faults) -> tuple[str, ...]:
    """mon-fri, or [sat, sun]: the days on which the window starts."""
    if value is None:
        return DAYS
    chosen: set[str] = set()
    for part in (
        value.split(",")
        if isinstance(value, str)
        else value
        if isinstance(value, list)
        else [value]
    ):
        first, dash, last = (
            part.strip().lower().partition("-") if isinstance(part, str) else ("", "", "")
        )
        ends = [day.strip()[:3] for day in ((first, last) if dash else (first,))]
        if not all(end in DAYS for end in ends):
            faults.add(
                where,
                f"{show_value(part)} is not a day of the week.",
                "Write mon-fri, or [sat, sun].",
            )
            return DAYS
        i, j = DAYS.index(ends[0]), DAYS.index(ends[-1])
        chosen |= set(DAYS[i : j + 1] if i <= j else DAYS[i:] + DAYS[: j + 1])
    return tuple(day for day in DAYS if day in chosen) or DAYS


def _read_zone(value: Any, where: str, faults: Faults) -> str:
    if value is None:
        return "UTC"
    try:
        return ZoneInfo(value).key
    except (KeyError, ValueError, OSError, TypeError, AttributeError):
        faults.add(
            where,
            f"{show_value(value)} is not a time zone.",
            "Use a name like Europe/Berlin or UTC.",
        )
        return "UTC"


def window_config(window: Window) -> dict[str, Any]:
    config: dict[str, Any] = {
        "from": f"{window.start:%H:%M}",
        "to": f"{window.end:%H:%M}",
        "zone": window.zone,
    }
    if window.days != DAYS:
        config["days"] = list(window.days)
    if window.name:
        config["name"] = window.name
    return config
