"""The section of a claim's page about its ports: addresses, conditions, backend."""

from dataclasses import dataclass
from datetime import datetime

from claims.allocation.claim_view import ClaimView
from claims.kinds import ShownCondition, ShownPort

WORDS = {
    "allocated": ("allocated", "not allocated"),
    "programmed": ("programmed", "not programmed"),
    "ready": ("ready", "not ready"),
}


@dataclass(frozen=True, slots=True)
class ConditionRow:
    word: str
    css: str
    since: datetime | None
    reason: str


@dataclass(frozen=True, slots=True)
class PortRow:
    name: str  # 80/TCP, or the protocol of a port that the claim does not name
    addresses: list[str]
    place: str
    target: str
    word: str
    css: str
    reason: str


def port_context(claim: ClaimView) -> dict[str, object]:
    return {
        "conditions": [_row(each) for each in claim.conditions],
        "ports": [_port(each) for each in claim.ports],
        "backend_text": _describe_backend(claim),
    }


def _describe_backend(claim: ClaimView) -> str:
    if claim.backend is None:
        return "no backend is set"
    ports = list(dict.fromkeys(claim.backend["ports"]))
    shown = ", ".join(str(port) for port in ports[:4])
    more = f" and {len(ports) - 4} more" if len(ports) > 4 else ""
    return f"backend {claim.backend['ip']}, port {shown}{more}"


def _row(condition: ShownCondition) -> ConditionRow:
    met, unmet = WORDS[condition["type"]]
    css = "failed" if condition["is_failed"] else "done" if condition["is_met"] else "waiting"
    since = condition["since"]
    return ConditionRow(
        met if condition["is_met"] else unmet,
        css,
        None if since is None else datetime.fromisoformat(since),
        condition["reason"],
    )


def _port(port: ShownPort) -> PortRow:
    ready = port["conditions"][-1]
    own = "" if port["port"] is None else f"{port['port']}/"
    number = "" if port["number"] is None else f" {port['number']}"
    end = "" if port["end"] is None else f"-{port['end']}"
    word = "ready" if ready["is_met"] else "failed" if ready["is_failed"] else "not ready"
    return PortRow(
        name=f"{own}{port['protocol']}",
        addresses=port["addresses"],
        place=f"{port['member'] or port['pool']}{number}{end}",
        target=port["target"] or "",
        word="ready, unchecked" if ready["is_met"] and port["health"] == "unchecked" else word,
        css="ready" if ready["is_met"] else "failed" if ready["is_failed"] else "waiting",
        reason=ready["reason"],
    )
