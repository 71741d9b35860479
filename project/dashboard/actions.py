"""Buttons: what each would do, or why it is off. They stand where they are used whether they are on
or off, so that nobody has to guess what somebody else could do."""

from dataclasses import dataclass, replace

from django.urls import reverse

from pools.access.permissions import Identity
from pools.lifecycle.selectors import spec_of
from pools.models import Pool
from pools.pages.base import why_not
from pools.providers.base import known_providers
from project.kernel.ui import formatting
from slots.pages.dashboard_queries import MemberCard, count_members


@dataclass(frozen=True, slots=True)
class Action:
    word: str
    href: str
    text: str = ""  # what would happen
    why: str = ""  # it is off because of that
    is_dangerous: bool = False
    is_page: bool = False  # not a question: a page of its own


def pool_actions(identity: Identity, pool: Pool) -> list[Action]:
    def at(name: str) -> str:
        return reverse(name, args=[pool.name])

    leaving = "The pool is being deleted." if pool.state == "deleting" else ""
    counts = count_members([pool.pk])[pool.pk]
    is_full = counts.there >= pool.max_members
    full = (
        f"It has {counts.there} of {pool.max_members} members. Raise the maximum first."
        if is_full
        else ""
    )
    found = [
        Action(
            "New claim…",
            f"{reverse('claim-new')}?pool={pool.name}",
            "a slot, or a place in line",
            why=why_not(identity, "claim", pool.pk) or leaving,
        ),
        Action(
            "Add members…",
            at("members-add"),
            f"{counts.there:,} of {pool.max_members:,} are there",
            why=why_not(identity, "add_member", pool.pk) or leaving or full,
        ),
    ]
    if counts.there > 1:
        found.append(
            Action(
                "Drain members…",
                at("members-drain"),
                "says first who is there",
                why=why_not(identity, "drain", pool.pk) or leaving,
            )
        )
    if pool.paused_until is not None:
        found.append(
            Action(
                "Resume…",
                at("pool-resume"),
                "slots are handed out again",
                why=why_not(identity, "pause", pool.pk),
            )
        )
    else:
        found.append(
            Action(
                "Pause…",
                at("pool-pause"),
                "asks for how long and why",
                why=why_not(identity, "pause", pool.pk) or leaving,
            )
        )
    found.append(
        Action(
            "Edit",
            at("pool-edit"),
            "the configuration",
            why=why_not(identity, "configure", pool.pk) or leaving,
            is_page=True,
        )
    )
    found.append(
        Action(
            "Delete…",
            at("pool-delete"),
            "says first whom it ends",
            why=why_not(identity, "configure", pool.pk) or leaving,
            is_dangerous=True,
        )
    )
    return found


def member_actions(identity: Identity, pool: Pool, board: MemberCard) -> list[Action]:
    def at(name: str) -> str:
        return reverse(name, args=[board.id])

    if board.state in ("deleting", "gone"):
        return []
    held = len({cell.claim_id for cell in board.held})
    stay = (
        f"{formatting.plural(held, 'claim stays', 'claims stay')}."
        if held
        else "Nobody is here now."
    )
    cordon, remove = (
        why_not(identity, "cordon", pool.pk),
        why_not(identity, "remove_member", pool.pk),
    )
    closing = "The pool is being deleted." if pool.state == "deleting" else ""
    may_drain = why_not(identity, "drain", pool.pk) or closing
    force = Action(
        "Force…", at("member-force-drain"), force_words(board), why=may_drain, is_dangerous=True
    )
    if board.is_draining:
        force = replace(
            force, why=may_drain or ("" if board.held else "Nobody holds a slot here any more.")
        )
        leaves = "It leaves already." if board.is_leaving else remove or closing
        deadline = (
            f"{board.drain_until:%d %b %H:%M} UTC"
            if board.drain_until
            else "None yet: it leaves when the last has ended"
        )
        by = f", set by {board.drain_by}" if board.drain_by else ""
        back = "Back to cordoned, as before" if board.stays_cordoned else "Takes new claims again"
        return [
            Action(
                "Undrain…", at("member-undrain"), f"{back}; nobody here notices.", why=may_drain
            ),
            Action(
                "Deadline…", at("member-drain"), f"{deadline}{by}: “{board.note}”.", why=may_drain
            ),
            force,
            *agent_actions(identity, pool, board),
            Action(
                "Remove…",
                at("member-remove"),
                f"Goes when it is empty. {stay}",
                why=leaves,
                is_dangerous=not leaves,
            ),
        ]
    until = f"No new claims; empty by a deadline. {stay if held else ''}".strip()
    drain = Action("Drain…", at("member-drain"), until, why=may_drain)
    if board.is_cordoned:
        first = Action("Uncordon…", at("member-uncordon"), "Takes new claims again.", why=cordon)
    else:
        first = Action("Cordon…", at("member-cordon"), f"No new claims. {stay}", why=cordon)
    text = (
        (
            "Takes nothing new and leaves when "
            f"{formatting.plural(held, 'claim has', 'claims have')} ended."
        )
        if held
        else "Nobody is here: it goes at once."
    )
    return [
        first,
        drain,
        *([force] if held else []),
        *agent_actions(identity, pool, board),
        Action("Remove…", at("member-remove"), text, why=remove or closing, is_dangerous=True),
    ]


def force_words(board: MemberCard) -> str:
    """What it would do to whom is here now."""
    held = {cell.claim_id: cell.state for cell in board.held}
    running, waiting = (
        sum(state == "held" for state in held.values()),
        sum(state == "reserved" for state in held.values()),
    )
    ends = (
        f"Ends {formatting.plural(running, 'claim')} here: plans go back in line, applies are lost."
        if running
        else ""
    )
    loses = (
        (
            f"{formatting.plural(waiting, 'plan keeps all but its slot', 'plans keep all but their slots')}"  # noqa: E501
            "."
        )
        if waiting
        else ""
    )
    return " ".join(part for part in (ends, loses) if part) or "Nobody is here: it goes at once."


def agent_actions(identity: Identity, pool: Pool, board: MemberCard) -> list[Action]:
    """Of a member that is an agent: a new start and another token where it is ours, a token for
    it where it is somebody else's.
    """
    provider = known_providers().get(pool.provider)
    may_edit = why_not(identity, "edit_member", pool.pk)
    token = Action(
        "Token…",
        reverse("member-token", args=[board.id]),
        "What it signs its heartbeat with.",
        why=may_edit,
        is_page=True,
    )
    if provider is None or not provider.has_agents:
        return [] if spec_of(pool).liveness is None else [token]
    if not provider.is_owner:
        return [replace(token, text="With the lines that start its agent, wherever it is to run.")]
    running = (
        "Something may run here."
        if board.state != "creating" and any(c.state == "held" for c in board.cells)
        else ""
    )
    leaving = "It leaves." if board.is_leaving else ""
    why = why_not(identity, "cordon", pool.pk) or running or leaving
    found = [
        Action(
            "Restart…",
            reverse("member-restart", args=[board.id]),
            "A new process; what is reserved stays so.",
            why=why,
        )
    ]
    if provider.rotates:
        away = "" if board.state == "ready" else "It gets one with its next start."
        text = "Another token for its agent; what runs goes on."
        found.append(
            Action(
                "Rotate token…",
                reverse("member-rotate", args=[board.id]),
                text,
                why=may_edit or away,
            )
        )
    return found
