"""The sentence about a member on its panel: its state, and what it waits for."""

from pools.config.spec import Liveness
from pools.providers.base import Provider, known_providers
from project.kernel.ui import formatting
from slots.pages.dashboard_queries import MemberCard


def describe_member(card: MemberCard, provider: str, liveness: Liveness | None) -> str:
    """The sentence for a member that neither drains nor was given up. The template writes the
    sentences for those two, because they contain times.
    """
    if card.is_evacuating:
        return "Takes no new claims, and its claims move to other load balancers."
    if card.is_cordoned:
        return f"Takes no new claims: “{card.note}”. Claims here stay."
    if card.css == "lost":
        return (
            "No heartbeat for too long. Its claims are lost. It is ready again after its "
            "next heartbeat."
        )
    if card.css == "unhealthy":
        limit = (
            f" for {formatting.duration(liveness.lost)}"
            if liveness is not None and liveness.lost
            else ""
        )
        return f"No heartbeat in time. It takes no new claims and keeps its claims{limit}."
    if card.state == "creating":
        return known_providers().get(provider, Provider).describe_creation(card.outside)
    if card.state == "deleting":
        return "Empty, being removed."
    if card.is_outdated:
        return (
            "Created from an older configuration of its pool. It takes claims and is renewed "
            "once it is idle."
        )
    if not card.held:
        return "Idle, takes claims."
    return "Takes claims." if card.open_count else "All slots are taken."
