"""The result that an agent reports for an ended task, parsed from the body of its call.

The parser cuts long texts instead of rejecting them, because a rejected result would be lost.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from pools.config.parsing import (
    Faults,
    Pattern,
    field_path,
    kind_of,
    read_choice,
    read_integer,
)
from project.kernel.errors import wrong_field

OUTCOMES = ("planned", "no_changes", "applied", "failed", "cancelled", "plan_again")
OF_PLAN = frozenset({"planned", "no_changes", "failed", "cancelled"})
OF_APPLY = frozenset({"applied", "failed", "cancelled", "plan_again"})
COUNTS = ("add", "change", "destroy", "replace")
FACTS = ("binary", "version", "platform", "lock_digest", "source_digest", "commit", "backend")
CODE = Pattern(
    re.compile(r"[a-z][a-z0-9_]{0,39}"),
    "Send up to 40 lowercase letters, digits and underscores.",
    what="a code",
)
DIGEST = Pattern(
    re.compile(r"[0-9a-f]{64}"), "Send 64 lowercase hexadecimal digits.", what="a digest"
)
LONGEST_REASON = 2000
LONGEST_FACT = 300
MAX_INTEGER = 2**31 - 1
# Codes of an apply that was interrupted or could not save its state: the extent of its changes is
# unknown.
CUT_OFF = ("killed", "timeout", "out_of_memory", "disk_full", "provider_crash", "state_not_saved")
# Exit codes of a shell whose command was ended by ABRT, BUS, KILL, SEGV or TERM.
BY_SIGNAL = (134, 135, 137, 139, 143)
MOST_BYTES = 2**53


@dataclass(frozen=True, slots=True)
class LogTotals:
    """The size of the whole log: a reader of an incomplete log sees that a part is missing."""

    next: int = 0
    bytes: int = 0
    lines: int = 0
    left_out: int = 0


@dataclass(frozen=True, slots=True)
class TaskResult:
    outcome: str
    exit_code: int | None = None
    code: str = ""  # error code
    reason: str = ""
    digest: bytes | None = None  # sha256 of the saved plan
    # add, change, destroy, replace; drift
    summary: Mapping[str, int] = field(default_factory=dict)
    facts: Mapping[str, str] = field(default_factory=dict)
    log: LogTotals = LogTotals()
    left_running: int = 0  # processes that survived KILL
    rescued_bytes: int | None = None  # size of a state that only the agent has

    @property
    def is_cut_off(self) -> bool:
        return is_cut_off(self.outcome, self.code, self.exit_code)

    @property
    def explanation(self) -> str:
        """The reason of the outcome, for events."""
        parts = [": ".join(filter(None, (self.code, self.reason)))]
        if self.left_running:
            parts.append(
                f"{self.left_running} of its processes cannot be ended, its slot waits "
                "until they are gone"
            )
        return "; ".join(filter(None, parts))


def is_cut_off(outcome: str, code: str, exit_code: int | None) -> bool:
    """True if an apply with this result may have applied a part of its plan."""
    return (
        outcome == "cancelled"
        or code in CUT_OFF
        or (outcome == "failed" and exit_code in BY_SIGNAL)
    )


def parse_result(body: object) -> TaskResult:
    """Raises with all faults at once. The parser ignores unknown fields: the agent may be newer."""
    faults = Faults()
    if not isinstance(body, Mapping):
        text = f"This is {kind_of(body)}, not an object with fields."
        raise wrong_field("", text, "Send an object with its outcome.")
    outcome = read_choice(body, "", "outcome", faults, OUTCOMES, "")
    if body.get("outcome") is None:
        faults.add("outcome", "`outcome` is required.", f"Known: {', '.join(OUTCOMES)}.")
    digest = _read_digest(body.get("digest"), faults)
    if outcome == "planned" and digest is None and not faults.found:
        faults.add(
            "digest",
            "A plan needs a digest, because approvals name it.",
            "Send the sha256 of the saved plan.",
        )
    result = TaskResult(
        outcome=outcome,
        exit_code=read_integer(body, "", "exit_code", faults, -(2**31), MAX_INTEGER),
        code=_read_code(body.get("code"), faults),
        reason=_cut(body.get("reason"), LONGEST_REASON),
        digest=digest,
        summary=_read_summary(body.get("summary"), faults),
        facts=_read_facts(body.get("facts"), faults),
        log=_read_log(body.get("log"), faults),
        left_running=read_integer(body, "", "left_running", faults, 0, MAX_INTEGER, 0),
        rescued_bytes=_read_state(body.get("state"), faults),
    )
    faults.raise_if_any()
    return result


def describe_mismatch(reported: Mapping[str, int], listed: Mapping[str, int] | None) -> str:
    """How the counts that the agent reported contradict its list of changes; empty if they agree or
    there is no list.
    """
    if listed is None or all(reported.get(name, 0) == listed.get(name, 0) for name in COUNTS):
        return ""
    return (
        f"The agent counts {describe_counts(reported)}, but the plan that it sent lists "
        f"{describe_counts(listed)}."
    )


def describe_counts(counts: Mapping[str, int]) -> str:
    parts = [f"{number:,} to {name}" for name in COUNTS if (number := counts.get(name, 0))]
    return ", ".join(parts) or "no changes"


def _read_digest(value: object, faults: Faults) -> bytes | None:
    found = None if value in (None, "") else DIGEST.read(value, "digest", faults)
    return None if found is None else bytes.fromhex(found)


def _read_code(value: object, faults: Faults) -> str:
    return "" if value in (None, "") else CODE.read(value, "code", faults) or ""


def _read_summary(value: object, faults: Faults) -> dict[str, int]:
    if value is None:
        return {}  # the server counts the list of changes instead
    given = _mapping(value, "summary", faults)
    found: dict[str, int] = {
        name: read_integer(given, "summary", name, faults, 0, MAX_INTEGER, 0) for name in COUNTS
    }
    drift = given.get("drift")
    if isinstance(drift, bool):
        found["drift"] = drift
    elif drift is not None:
        found["drift"] = read_integer(given, "summary", "drift", faults, 0, MAX_INTEGER, 0)
    return found


def _read_facts(value: object, faults: Faults) -> dict[str, str]:
    given = _mapping(value, "facts", faults)
    found = {}
    for name in FACTS:
        text = given.get(name)
        if text is not None and not isinstance(text, str):
            faults.add(field_path("facts", name), f"This is {kind_of(text)}, not text.")
        elif text:
            found[name] = _cut(text, LONGEST_FACT)
    return found


def _read_log(value: object, faults: Faults) -> LogTotals:
    given = _mapping(value, "log", faults)
    most = {"next": MAX_INTEGER, "bytes": MOST_BYTES, "lines": MAX_INTEGER, "left_out": MOST_BYTES}
    sizes = (read_integer(given, "log", name, faults, 0, high, 0) for name, high in most.items())
    return LogTotals(*sizes)


def _read_state(value: object, faults: Faults) -> int | None:
    if value is None:
        return None
    return read_integer(_mapping(value, "state", faults), "state", "size", faults, 0, MOST_BYTES, 0)


def _mapping(value: object, where: str, faults: Faults) -> Mapping[str, object]:
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        faults.add(where, f"This is {kind_of(value)}, not an object with fields.")
        return {}
    return value


def _cut(value: object, longest: int) -> str:
    if not isinstance(value, str):
        return ""
    # PostgreSQL cannot store half of a surrogate pair.
    text = value.replace("\x00", "").strip().encode("utf-8", "replace").decode()
    return text if len(text) <= longest else text[: longest - 1] + "…"
