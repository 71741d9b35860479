"""Actions on pools and members, each with its effect or the reason why it is off. Pages show
actions that are off, so that a viewer sees which role they need.
"""

from dataclasses import dataclass, replace

from django.urls import reverse

from pools.access.permissions import Identity
from pools.lifecycle.selectors import spec_of
from pools.models import Pool
from pools.pages.base import why_not
from pools.providers.base import has_agents, known_providers
from project.kernel.ui import formatting
from slots.pages.dashboard_queries import MemberCard, count_members


@dataclass(frozen=True, slots=True)
class Action:
    word: str
    href: str
    text: str = ""  # the effect
    why: str = ""  # the reason why the action is off; empty: it is on
    is_dangerous: bool = False
    is_page: bool = False  # leads to a page instead of a dialog


def pool_actions(identity: Identity, pool: Pool) -> list[Action]:
    def at(name: str) -> str:
        return reverse(name, args=[pool.name])

    leaving = "The pool is being deleted." if pool.state == "deleting" else ""
    counts = count_members([pool.pk])[pool.pk]
    is_full = counts.there >= pool.max_members
    full = (
        f"The pool has {counts.there} of {pool.max_members} members. Raise the maximum first."
        if is_full
        else ""
    )
    found = [
        Action(
            "New claim…",
            f"{reverse('claim-new')}?pool={pool.name}",
            "binds a slot or queues",
            why=why_not(identity, "claim", pool.pk) or leaving,
        ),
        Action(
            "Add members…",
            at("members-add"),
            f"{counts.there:,} of {pool.max_members:,} exist",
            why=why_not(identity, "add_member", pool.pk) or leaving or full,
        ),
    ]
    if counts.there > 1:
        found.append(
            Action(
                "Drain members…",
                at("members-drain"),
                "shows the affected claims first",
                why=why_not(identity, "drain", pool.pk) or leaving,
            )
        )
    pause = why_not(identity, "pause", pool.pk)
    configure = why_not(identity, "configure", pool.pk) or leaving
    if pool.paused_until is not None:
        found.append(Action("Resume…", at("pool-resume"), "claims are bound again", why=pause))
    else:
        text = "no new claims for a while"
        found.append(Action("Pause…", at("pool-pause"), text, why=pause or leaving))
    delete = "shows the affected claims first"
    return [
        *found,
        Action("Edit", at("pool-edit"), "changes the configuration", why=configure, is_page=True),
        Action("Delete…", at("pool-delete"), delete, why=configure, is_dangerous=True),
    ]


def member_actions(identity: Identity, pool: Pool, board: MemberCard) -> list[Action]:
    def at(name: str) -> str:
        return reverse(name, args=[board.id])

    if board.state in ("deleting", "gone"):
        return []
    held = len({cell.claim_id for cell in board.held})
    stay = (
        f"{formatting.plural(held, 'claim stays', 'claims stay')}." if held else "No claim is here."
    )
    cordon, remove = (
        why_not(identity, "cordon", pool.pk),
        why_not(identity, "remove_member", pool.pk),
    )
    closing = "The pool is being deleted." if pool.state == "deleting" else ""
    may_drain = why_not(identity, "drain", pool.pk) or closing
    force = Action(
        "Force drain…",
        at("member-force-drain"),
        describe_force_drain(board),
        why=may_drain,
        is_dangerous=True,
    )
    if board.is_draining:
        force = replace(
            force, why=may_drain or ("" if board.held else "No claim holds a slot here.")
        )
        leaves = "It is already being removed." if board.is_leaving else remove or closing
        deadline = (
            f"{board.drain_until:%d %b %H:%M} UTC"
            if board.drain_until
            else "None: the drain ends with the last claim"
        )
        by = f", set by {board.drain_by}" if board.drain_by else ""
        back = "Stays cordoned" if board.stays_cordoned else "Takes new claims again"
        return [
            Action(
                "Undrain…",
                at("member-undrain"),
                f"{back}. Claims here are not affected.",
                why=may_drain,
            ),
            Action(
                "Change deadline…",
                at("member-drain"),
                f"{deadline}{by}: “{board.note}”.",
                why=may_drain,
            ),
            force,
            *agent_actions(identity, pool, board),
            Action(
                "Remove…",
                at("member-remove"),
                f"Removed once it is empty. {stay}",
                why=leaves,
                is_dangerous=not leaves,
            ),
        ]
    until = f"No new claims; emptied by a deadline. {stay if held else ''}".strip()
    drain = Action("Drain…", at("member-drain"), until, why=may_drain)
    if board.is_cordoned:
        first = Action("Uncordon…", at("member-uncordon"), "Takes new claims again.", why=cordon)
    else:
        first = Action("Cordon…", at("member-cordon"), f"No new claims. {stay}", why=cordon)
    text = (
        (
            "Takes no new claims and is removed after "
            f"{formatting.plural(held, 'claim has', 'claims have')} ended."
        )
        if held
        else "No claim is here: the member is removed at once."
    )
    return [
        first,
        drain,
        *([force] if held else []),
        *agent_actions(identity, pool, board),
        Action("Remove…", at("member-remove"), text, why=remove or closing, is_dangerous=True),
    ]


def describe_force_drain(board: MemberCard) -> str:
    """The effect of a force drain on the claims that the member has now."""
    held = {cell.claim_id: cell.state for cell in board.held}
    running, waiting = (
        sum(state == "held" for state in held.values()),
        sum(state == "reserved" for state in held.values()),
    )
    ends = (
        f"Ends {formatting.plural(running, 'claim')} here: plans are queued again, applies are lost."  # noqa: E501
        if running
        else ""
    )
    loses = (
        (
            f"{formatting.plural(waiting, 'reserved plan loses its slot', 'reserved plans lose their slots')}"  # noqa: E501
            "."
        )
        if waiting
        else ""
    )
    return (
        " ".join(part for part in (ends, loses) if part)
        or "No claim is here: the member is removed at once."
    )


def agent_actions(identity: Identity, pool: Pool, board: MemberCard) -> list[Action]:
    """Actions on the agent of a member: restart and rotate the token where Berth starts the agent,
    create a token where an operator starts it.
    """
    provider, spec = known_providers().get(pool.provider), spec_of(pool)
    may_edit = why_not(identity, "edit_member", pool.pk)
    token = Action(
        "Token…",
        reverse("member-token", args=[board.id]),
        "Creates the token for the member’s heartbeat.",
        why=may_edit,
        is_page=True,
    )
    heartbeat = [] if has_agents(spec) or spec.liveness is None else [token]
    if provider is None or not provider.has_agents:
        return heartbeat
    if not provider.is_owner:
        return [replace(token, text="Creates a token and shows the commands that start the agent.")]
    running = (
        "A task may be running here."
        if board.state != "creating" and any(c.state == "held" for c in board.cells)
        else ""
    )
    leaving = "The member is being removed." if board.is_leaving else ""
    why = why_not(identity, "cordon", pool.pk) or running or leaving
    process = "agent process" if has_agents(spec) else "pod or machine"
    found = [
        Action(
            "Restart…",
            reverse("member-restart", args=[board.id]),
            f"Starts a new {process}; reserved slots stay reserved.",
            why=why,
        ),
        *heartbeat,
    ]
    if has_agents(spec) and provider.rotates:
        away = "" if board.state == "ready" else "The agent gets a new token at its next start."
        text = "Gives the agent a new token; running tasks continue."
        found.append(
            Action(
                "Rotate token…",
                reverse("member-rotate", args=[board.id]),
                text,
                why=may_edit or away,
            )
        )
    return found
