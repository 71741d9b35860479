"""`task:` of a pool's configuration: what a task may take and what it is given, in a pool whose
members are agents. Pure.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from pools.config.durations import format_duration
from pools.config.parsing import (
    Faults,
    Texts,
    field_path,
    read_duration,
    read_mapping,
    read_texts,
    show_value,
)
from pools.config.sizes import format_size, parse_size

FIELDS = ("timeout", "stop_timeout", "log", "plan", "env", "git", "cpu", "memory", "binary")
kB, MB, GB = 10**3, 10**6, 10**9  # noqa: N816  (as they are written)
SECOND, MINUTE, HOUR, DAY = 1.0, 60.0, 3600.0, 86400.0

ENV_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,99}")
HOST = re.compile(r"(?:\*\.)?[a-z0-9](?:[a-z0-9.-]{0,251}[a-z0-9])?(?::([1-9]\d{0,4}))?")
HIGHEST_PORT = 65535
HOST_RULE = (
    "Write a name, like git.example.com or *.example.com, with its port where that is not the "
    "usual one: git.example.com:8443."
)
# A name, or an absolute path without `.` and `..`; what the agent takes
# (slots/agent/executors/terraform.py), or less.
BINARY = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]{0,99}|(?:/(?!\.{1,2}(?:/|\Z))[A-Za-z0-9._+@~-]+)+")
MOST_ENV = 100
MOST_HOSTS = 100
LONGEST_VALUE = 8_000
OURS = "BERTH_"


@dataclass(frozen=True, slots=True)
class TaskSpec:
    timeout: float = HOUR  # seconds a step may run; a claim may ask for less
    # Seconds from SIGINT to TERM for an apply that is ended: it finishes what it began.
    stop_timeout: float = 10 * MINUTE
    log: int = 8 * MB  # bytes of a step's log that are kept: its head and its tail
    plan: int = 32 * MB  # bytes of a saved plan, and of its JSON
    # For every task of the pool; secrets stand elsewhere, sealed.
    env: Mapping[str, str] = field(default_factory=dict)
    git_hosts: tuple[str, ...] = ()  # from where a task may fetch its source; none: from nowhere
    cpu: float | None = None  # seconds of CPU time
    memory: int | None = None  # bytes
    binary: str = "tofu"  # that plans and applies, unless the claim names another

    def as_config(self) -> dict[str, Any]:
        config: dict[str, Any] = {
            "timeout": format_duration(self.timeout),
            "stop_timeout": format_duration(self.stop_timeout),
            "log": format_size(self.log),
            "plan": format_size(self.plan),
            "binary": self.binary,
        }
        if self.env:
            config["env"] = dict(sorted(self.env.items()))
        if self.git_hosts:
            config["git"] = {"hosts": list(self.git_hosts)}
        if self.cpu is not None:
            config["cpu"] = format_duration(self.cpu)
        if self.memory is not None:
            config["memory"] = format_size(self.memory)
        return config


DEFAULT = TaskSpec()


def read_task(value: Any, where: str, faults: Faults) -> TaskSpec:
    if value is None:
        return DEFAULT
    given = read_mapping(value, where, FIELDS, faults)
    git = read_mapping(given.get("git") or {}, field_path(where, "git"), ("hosts",), faults)
    return TaskSpec(
        timeout=read_duration(given, where, "timeout", faults, SECOND, DAY, DEFAULT.timeout)
        or DEFAULT.timeout,
        stop_timeout=read_duration(
            given, where, "stop_timeout", faults, SECOND, DAY, DEFAULT.stop_timeout
        )
        or DEFAULT.stop_timeout,
        log=read_size(given, where, "log", faults, 64 * kB, GB, DEFAULT.log) or DEFAULT.log,
        plan=read_size(given, where, "plan", faults, 64 * kB, 256 * MB, DEFAULT.plan)
        or DEFAULT.plan,
        env=read_env(given.get("env"), field_path(where, "env"), faults),
        git_hosts=read_hosts(git.get("hosts"), field_path(where, "git.hosts"), faults),
        cpu=read_duration(given, where, "cpu", faults, SECOND, DAY),
        memory=read_size(given, where, "memory", faults, 16 * MB, 1000 * GB),
        binary=_read_binary(given.get("binary"), field_path(where, "binary"), faults),
    )


def read_size(
    values: Mapping[str, Any],
    where: str,
    name: str,
    faults: Faults,
    low: int,
    high: int,
    default: int | None = None,
) -> int | None:
    value = values.get(name)
    if value is None:
        return default
    between = f"from {format_size(low)} to {format_size(high)}"
    size = parse_size(value) if isinstance(value, str) else None
    if size is None:
        faults.add(
            field_path(where, name),
            f"{show_value(value)} is not a size.",
            f"Write one {between}, like 8MB or 2GB.",
        )
    elif not low <= size <= high:
        faults.add(
            field_path(where, name), f"{show_value(value)} is out of range.", f"Use one {between}."
        )
    else:
        return size
    return default


def read_env(value: Any, where: str, faults: Faults) -> dict[str, str]:
    """Names with values, as text. Whatever begins with BERTH_ is the agent's own."""
    form = Texts(
        "an environment is",
        "{TF_LOG: INFO}",
        "variables",
        MOST_ENV,
        LONGEST_VALUE,
        _fault_of_variable,
    )
    return read_texts(value, where, faults, form)


def _fault_of_variable(name: Any) -> tuple[str, str] | None:
    if not isinstance(name, str) or not ENV_NAME.fullmatch(name):
        return (
            "This is no name of a variable.",
            "Use letters, digits and underscores, no digit first.",
        )
    return (
        (f"Names that begin with {OURS} are the agent’s own.", "Choose another name.")
        if name.startswith(OURS)
        else None
    )


def read_hosts(value: Any, where: str, faults: Faults) -> tuple[str, ...]:
    if value is None:
        return ()
    if not isinstance(value, list) or len(value) > MOST_HOSTS:
        faults.add(
            where,
            f"This is not a list of at most {MOST_HOSTS} hosts.",
            "Write it like [git.example.com].",
        )
        return ()
    found = []
    for i, host in enumerate(value):
        match = HOST.fullmatch(host.lower()) if isinstance(host, str) else None
        if match and int(match[1] or 1) <= HIGHEST_PORT:
            found.append(host.lower())
        else:
            faults.add(f"{where}[{i}]", f"{show_value(host)} is not a host.", HOST_RULE)
    return tuple(dict.fromkeys(found))


def _read_binary(value: Any, where: str, faults: Faults) -> str:
    if value is None:
        return DEFAULT.binary
    if isinstance(value, str) and len(value) <= 255 and BINARY.fullmatch(value):
        return value
    faults.add(
        where,
        f"{show_value(value)} is not a program.",
        "Write its name, like tofu or terraform, or its whole path.",
    )
    return DEFAULT.binary
