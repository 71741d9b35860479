"""The outcome of a task's step, as the agent reports it to the server."""

from __future__ import annotations

import platform
import re
import sys
from dataclasses import dataclass, field

ANSI = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|[@-Z\\-_])")
FRAME = " \t│╷╵"
LONGEST_REASON = 600


@dataclass
class StepOutcome:
    outcome: str
    exit_code: int | None = None
    code: str = ""
    reason: str = ""
    digest: str = ""
    summary: dict[str, int] = field(default_factory=dict)
    facts: dict[str, str] = field(default_factory=dict)
    has_plan: bool = False
    has_json: bool = False

    def as_result(self) -> dict[str, object]:
        return {
            "outcome": self.outcome,
            "exit_code": self.exit_code,
            "code": self.code,
            "reason": self.reason[:LONGEST_REASON],
            "digest": self.digest,
            "summary": self.summary,
            "facts": self.facts,
        }


def name_platform() -> str:
    """The platform as Terraform names it, like linux_amd64."""
    machine = platform.machine().lower()
    return (
        f"{sys.platform.rstrip('0123456789')}"
        f"_{ {'x86_64': 'amd64', 'aarch64': 'arm64', 'i686': '386'}.get(machine, machine) }"
    )


def strip_ansi(data: bytes) -> str:
    return ANSI.sub("", data.decode("utf-8", "replace"))


def find_errors(tail: bytes) -> str:
    """The first lines of Terraform's errors, else the last line. They are not cut here, because
    masking does not find half a secret.
    """
    lines = [line.strip(FRAME) for line in strip_ansi(tail).splitlines()]
    heads = [line for line in lines if line.startswith("Error: ")]
    if heads:
        return "; ".join(dict.fromkeys(heads))
    filled = [line for line in lines if line]
    return filled[-1] if filled else ""
