"""Buttons: what each would do, or why it is off. They stand where they are used whether they are on or off, so that nobody has to guess
what somebody else could do."""

from dataclasses import dataclass

from django.urls import reverse

from pools.access import Identity
from pools.models import Pool
from pools.pages import why_not
from pools.providers.base import known_providers
from project.kernel import words
from slots.boards import Board, count_members


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
    full = f"It has {counts.there} of {pool.max_members} members. Raise the maximum first." if is_full else ""
    found = [
        Action("New claim…", f"{reverse('claim-new')}?pool={pool.name}", why=why_not(identity, "claim", pool.pk) or leaving),
        Action("Add members…", at("members-add"), why=why_not(identity, "add_member", pool.pk) or leaving or full),
    ]
    if pool.paused_until is not None:
        found.append(Action("Resume…", at("pool-resume"), why=why_not(identity, "pause", pool.pk)))
    else:
        found.append(Action("Pause…", at("pool-pause"), why=why_not(identity, "pause", pool.pk) or leaving))
    found.append(Action("Edit", at("pool-edit"), why=why_not(identity, "configure", pool.pk) or leaving, is_page=True))
    found.append(Action("Delete…", at("pool-delete"), why=why_not(identity, "configure", pool.pk) or leaving, is_dangerous=True))
    return found


def member_actions(identity: Identity, pool: Pool, board: Board) -> list[Action]:
    def at(name: str) -> str:
        return reverse(name, args=[board.id])

    if board.state in ("deleting", "gone"):
        return []
    held = len({cell.claim_id for cell in board.held})
    stay = f"{words.plural(held, 'claim stays', 'claims stay')}." if held else "Nobody is here now."
    cordon, remove = why_not(identity, "cordon", pool.pk), why_not(identity, "remove_member", pool.pk)
    closing = "The pool is being deleted." if pool.state == "deleting" else ""
    if board.is_leaving:
        return [
            Action("Keep…", at("member-keep"), "Takes new claims again; nobody here notices.", why=remove or closing),
            Action(
                "Cordon…", at("member-cordon"), "It takes nothing new already, because it leaves.", why="It leaves and takes nothing new."
            ),
            Action("Remove…", at("member-remove"), f"Goes when it is empty. {stay}", why="It leaves already."),
        ]
    if board.is_cordoned:
        first = Action("Uncordon…", at("member-uncordon"), "Takes new claims again.", why=cordon)
    else:
        first = Action("Cordon…", at("member-cordon"), f"No new claims. {stay}", why=cordon)
    text = (
        f"Takes nothing new and leaves when {words.plural(held, 'claim has', 'claims have')} ended."
        if held
        else "Nobody is here: it goes at once."
    )
    return [
        first,
        *agent_actions(identity, pool, board),
        Action("Remove…", at("member-remove"), text, why=remove or closing, is_dangerous=True),
    ]


def agent_actions(identity: Identity, pool: Pool, board: Board) -> list[Action]:
    """Of a member that is an agent: start it anew where it is ours, a token for it where it is somebody else's."""
    provider = known_providers().get(pool.provider)
    if provider is None or not provider.has_agents:
        return []
    if provider.is_owner:
        running = "Something may run here." if board.state != "creating" and any(c.state == "held" for c in board.cells) else ""
        why = why_not(identity, "cordon", pool.pk) or running
        return [Action("Restart…", reverse("member-restart", args=[board.id]), "A new process; what is reserved stays so.", why=why)]
    text = "With the lines that start its agent, wherever it is to run."
    why = why_not(identity, "edit_member", pool.pk)
    return [Action("Token…", reverse("member-token", args=[board.id]), text, why=why, is_page=True)]
