"""The sentence about a member on its panel: its state, and what it waits for."""

from pools.config.spec import Liveness
from pools.providers.base import Provider, known_providers
from project.kernel.ui import formatting
from slots.pages.dashboard_queries import MemberCard


def describe_member(board: MemberCard, provider: str, liveness: Liveness | None) -> str:
    """The sentence for a member that neither drains nor was given up. The template writes the
    sentences for those two, because they contain times.
    """
    if board.is_cordoned:
        return f"Takes no new claims: “{board.note}”. Claims here stay."
    if board.css == "lost":
        return (
            "No heartbeat for too long. Its claims are lost. It is ready again after its "
            "next heartbeat."
        )
    if board.css == "unhealthy":
        limit = (
            f" for {formatting.duration(liveness.lost)}"
            if liveness is not None and liveness.lost
            else ""
        )
        return f"No heartbeat in time. It takes no new claims and keeps its claims{limit}."
    if board.state == "creating":
        return known_providers().get(provider, Provider).describe_creation(board.outside)
    if board.state == "deleting":
        return "Empty, being removed."
    if board.is_outdated:
        return (
            "Created from an older configuration of its pool. It takes claims and is renewed "
            "once it is idle."
        )
    if not board.held:
        return "Idle, takes claims."
    return "Takes claims." if board.open_count else "All slots are taken."
