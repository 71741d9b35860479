"""`task:` of a pool: limits and environment of a task, if members run agents. Pure."""

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace

from pools.config.durations import DAY, HOUR, MINUTE, SECOND
from pools.config.fields import Object, option
from pools.config.parsing import (
    Duration,
    Faults,
    ListOf,
    Pattern,
    Schema,
    Size,
    Text,
    Texts,
    ValueType,
    show_value,
)

kB, MB, GB = 10**3, 10**6, 10**9  # noqa: N816  (as they are written)

ENV_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,99}")
HOST = re.compile(r"(?:\*\.)?[a-z0-9](?:[a-z0-9.-]{0,251}[a-z0-9])?(?::([1-9]\d{0,4}))?")
HIGHEST_PORT = 65535
HOST_RULE = (
    "Write a name, like git.example.com or *.example.com, with its port if that is not the "
    "usual port: git.example.com:8443."
)
# A name, or an absolute path without `.` and `..`. The agent accepts the same or more
# (slots/agent/executors/terraform.py).
BINARY = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]{0,99}|(?:/(?!\.{1,2}(?:/|$))[A-Za-z0-9._+@~-]+)+")
OURS = "BERTH_"


def _fault_of_variable(name: object) -> tuple[str, str] | None:
    if not isinstance(name, str) or not ENV_NAME.fullmatch(name):
        return (
            "This is no name of a variable.",
            "Use letters, digits and underscores, no digit first.",
        )
    if name.startswith(OURS):
        return f"Names that begin with {OURS} are the agent’s own.", "Choose another name."
    return None


class Host(ValueType[str]):
    def read(self, value: object, where: str, faults: Faults) -> str | None:
        match = HOST.fullmatch(value.lower()) if isinstance(value, str) else None
        if match and int(match[1] or 1) <= HIGHEST_PORT:
            return match[0]
        faults.add(where, f"{show_value(value)} is not a host.", HOST_RULE)
        return None

    def schema(self) -> Schema:
        return {"type": "string", "pattern": f"^(?:{HOST.pattern.replace('a-z', 'A-Za-z')})$"}


ENV = Texts(
    "an environment is", "{TF_LOG: INFO}", "variables", 100, Text(8_000, False), _fault_of_variable
)
HOSTS = ListOf(Host(), "hosts", 100, "[git.example.com]")
PROGRAM = Pattern(
    BINARY,
    "Write its name, like tofu or terraform, or its whole path.",
    what="a program",
    missing="",
    longest=255,
)


@dataclass(frozen=True, slots=True)
class TaskSpec:
    timeout: float = option(
        Duration(SECOND, DAY), HOUR, "Time limit of a step; a claim may ask for less."
    )
    stop_timeout: float = option(
        Duration(SECOND, DAY),
        10 * MINUTE,
        "An interrupted apply may finish in this time before it is killed.",
    )
    log: int = option(
        Size(64 * kB, GB),
        8 * MB,
        "Size limit of a step's log; the start and the end of a longer log are kept.",
    )
    plan: int = option(
        Size(64 * kB, 256 * MB), 32 * MB, "Size limit of a saved plan, and of its JSON."
    )
    binary: str = option(
        PROGRAM, "tofu", "The program that plans and applies, unless the claim names another."
    )
    env: Mapping[str, str] = option(
        ENV, {}, "Environment of every task. Secrets are stored apart, encrypted."
    )
    git_hosts: tuple[str, ...] = option(
        HOSTS, (), "Hosts from which a task may fetch its source.", path="git.hosts"
    )
    cpu: float | None = option(Duration(SECOND, DAY), None, "Limit of CPU time.")
    memory: int | None = option(Size(16 * MB, 1000 * GB), None, "Limit of memory.")


DEFAULT = TaskSpec()


def _finish(spec: TaskSpec, given: Collection[str], where: str, faults: Faults) -> TaskSpec:
    return replace(spec, git_hosts=tuple(dict.fromkeys(spec.git_hosts)))


TASK = Object(TaskSpec, finish=_finish)


def read_env(value: object, where: str, faults: Faults) -> dict[str, str]:
    return dict((None if value is None else ENV.read(value, where, faults)) or {})
