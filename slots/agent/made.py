"""What an executor made of a task, as it goes to the server."""

from __future__ import annotations

import json
import platform
import re
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from .errors import TaskFailed
from .redaction import redact_plan
from .wire import Limits

ANSI = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|[@-Z\\-_])")
FRAME = " \t│╷╵"
LONGEST_REASON = 600


@dataclass
class Made:
    outcome: str
    exit_code: int | None = None
    code: str = ""
    reason: str = ""
    digest: str = ""
    summary: dict[str, int] = field(default_factory=dict)
    facts: dict[str, str] = field(default_factory=dict)
    has_plan: bool = False
    has_json: bool = False

    def as_result(self) -> dict[str, Any]:
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
    """As Terraform names it: linux_amd64."""
    machine = platform.machine().lower()
    return f"{sys.platform.rstrip('0123456789')}_{ {'x86_64': 'amd64', 'aarch64': 'arm64', 'i686': '386'}.get(machine, machine) }"


def plain(data: bytes) -> str:
    return ANSI.sub("", data.decode("utf-8", "replace"))


def find_errors(tail: bytes) -> str:
    """The heads of what Terraform complains of, else its last line. Whole: what is cut before it is masked keeps the half of a secret."""
    lines = [line.strip(FRAME) for line in plain(tail).splitlines()]
    heads = [line for line in lines if line.startswith("Error: ")]
    if heads:
        return "; ".join(dict.fromkeys(heads))
    said = [line for line in lines if line]
    return said[-1] if said else ""


def read_json(path: Path, most: int) -> dict[str, Any]:
    try:
        with path.open("rb") as file:
            data = file.read(most + 1)
        if len(data) > most:
            raise TaskFailed("plan_too_large", f"The plan as JSON has more than {most:,} bytes.")
        found = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise TaskFailed("not_json", f"What should be the plan as JSON is none: {str(error)[:200]}") from error
    if not isinstance(found, dict):
        raise TaskFailed("not_json", "What should be the plan as JSON is no JSON object.")
    return found


def most_raw(limits: Limits) -> int:
    """Before what repeats itself is left out; it is read into memory as a whole."""
    return min(max(limits.json_bytes * 3, 16_000_000), 200_000_000)


def keep_json(plan: dict[str, Any], secrets: list[bytes], path: Path, most: int) -> None:
    """Redacted. One that is too large is left without what repeats its changes."""
    try:
        kept = redact_plan(plan, secrets)
        data = json.dumps(kept, ensure_ascii=False).encode("utf-8", "replace")
        if len(data) > most:
            slim = {key: value for key, value in kept.items() if key not in ("prior_state", "planned_values", "relevant_attributes")}
            data = json.dumps(slim, ensure_ascii=False).encode("utf-8", "replace")
    except RecursionError as error:
        raise TaskFailed("not_json", "The plan as JSON is nested too deep.") from error
    if len(data) > most:
        raise TaskFailed("plan_too_large", f"The plan as JSON has {len(data):,} bytes, the limit of this pool is {most:,}.")
    path.write_bytes(data)
    path.chmod(0o600)
