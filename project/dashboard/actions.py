"""Actions on pools and members, each with its effect or the reason why it is off. Pages show
actions that are off, so that a viewer sees which role they need.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import NamedTuple

from django.urls import reverse

from claims.ports.evacuation.report import EvacuatedClaim
from pools.access.permissions import Identity
from pools.lifecycle.selectors import layout_of, spec_of
from pools.models import Pool
from pools.pages.base import explain_missing_role
from pools.providers.base import has_agents, known_providers
from project.kernel.ui import formatting
from slots.pages.dashboard_queries import MemberCard, count_members

NO_CLAIM = "No claim holds a slot of this member."
# Orders of operators to the scaler: the word on the page of the pool, the word on the page Scaling,
# and the effect.
ORDERS = {
    "grow": (
        "Create members…",
        "Create…",
        "Creates members at once; the policy may remove them later.",
    ),
    "pin": (
        "Pin…",
        "Pin…",
        "Keeps a fixed number of members for a while, whatever the policy decides.",
    ),
    "unpin": ("Unpin…", "Unpin…", "The policy decides again."),
    "resume": ("Resume scaler…", "Resume…", "The scaler decides again at once."),
    "pause": (
        "Pause scaler…",
        "Pause…",
        "No member is created or removed; claims are bound as usual.",
    ),
    "unfreeze": (
        "Lift freeze…",
        "Lift freeze…",
        "Only this time, until the window ends.",
    ),
    "roll": (
        "Renew members…",
        "Renew members…",
        "Renews outdated members one by one, each once it is idle.",
    ),
    "resume-roll": ("Resume roll…", "Resume roll…", "Renews outdated members again."),
    "pause-roll": (
        "Pause roll…",
        "Pause roll…",
        "No member is renewed; scaling continues.",
    ),
}


@dataclass(frozen=True, slots=True)
class Action:
    word: str
    href: str
    text: str = ""  # the effect
    why: str = ""  # the reason why the action is off; empty: it is on
    is_dangerous: bool = False
    is_page: bool = False  # leads to a page instead of a dialog


def scaling_orders(
    pool: Pool, orders: Mapping[str, str], *, is_brief: bool = False
) -> list[Action]:
    """`orders`: by the name of the order the reason why it is off, or an empty text."""
    found = []
    for name, why in orders.items():
        word, brief, text = ORDERS[name]
        if is_brief:
            word, text = brief, ""
        href = reverse(f"scaling-{name}", args=[pool.name])
        found.append(Action(word, href, text, why, is_dangerous=name == "unfreeze"))
    return found


def describe_full(there: int, most: int) -> str:
    """Why no member can be added; empty: the maximum leaves room."""
    if there < most:
        return ""
    return f"The pool has {there} of {most} members. Raise the maximum first."


def pool_actions(identity: Identity, pool: Pool) -> list[Action]:
    def at(name: str) -> str:
        return reverse(name, args=[pool.name])

    leaving = "The pool is being deleted." if pool.state == "deleting" else ""
    counts = count_members([pool.pk])[pool.pk]
    full = describe_full(counts.there, pool.max_members)
    found = [
        Action(
            "New claim…",
            f"{reverse('claim-new')}?pool={pool.name}",
            "binds a slot or queues",
            why=explain_missing_role(identity, "claim", pool.pk) or leaving,
        ),
        Action(
            "Add members…",
            at("members-add"),
            f"{counts.there:,} of {pool.max_members:,} exist",
            why=explain_missing_role(identity, "add_member", pool.pk) or leaving or full,
        ),
    ]
    if counts.there > 1:
        found.append(
            Action(
                "Drain members…",
                at("members-drain"),
                "shows the affected claims first",
                why=explain_missing_role(identity, "drain", pool.pk) or leaving,
            )
        )
    pause = explain_missing_role(identity, "pause", pool.pk)
    configure = explain_missing_role(identity, "configure", pool.pk) or leaving
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


def member_action(
    card: MemberCard, word: str, name: str, text: str, why: str, *, is_dangerous: bool = False
) -> Action:
    return Action(word, reverse(f"member-{name}", args=[card.id]), text, why, is_dangerous)


def member_actions(identity: Identity, pool: Pool, card: MemberCard) -> list[Action]:
    if card.state in ("deleting", "gone"):
        return []
    held = len({cell.claim_id for cell in card.held})
    stays = formatting.plural(held, "claim stays", "claims stay")
    stay = f"{stays}." if held else NO_CLAIM
    closing = "The pool is being deleted." if pool.state == "deleting" else ""
    may_drain = explain_missing_role(identity, "drain", pool.pk) or closing
    remove = explain_missing_role(identity, "remove_member", pool.pk) or closing
    agent = agent_actions(identity, pool, card)
    act = partial(member_action, card)
    force = act(
        "Force drain…",
        "force-drain",
        describe_force_drain(pool, card),
        may_drain,
        is_dangerous=True,
    )
    evacuation = evacuation_actions(pool, card, may_drain)
    if card.is_draining:
        no_claim = "" if card.held else NO_CLAIM
        leaves = "It is already being removed." if card.is_leaving else remove
        deadline = (
            f"{card.drain_until:%d %b %H:%M} UTC"
            if card.drain_until
            else "No deadline; the drain ends when the last claim ends"
        )
        by = f", set by {card.drain_by}" if card.drain_by else ""
        back = "Stays cordoned" if card.stays_cordoned else "Takes new claims again"
        text = f"Removed once it is empty. {stay}"
        return [
            act("Undrain…", "undrain", f"{back}. Claims here are not affected.", may_drain),
            act("Change deadline…", "drain", f"{deadline}{by}: “{card.note}”.", may_drain),
            replace(force, why=may_drain or no_claim),
            *evacuation,
            *agent,
            act("Remove…", "remove", text, leaves, is_dangerous=not leaves),
        ]
    cordon = explain_missing_role(identity, "cordon", pool.pk)
    if card.is_evacuating:
        closed = "It is being evacuated. Undo the evacuation."
        first = act("Uncordon…", "uncordon", "Takes new claims again.", cordon or closed)
    elif card.is_cordoned:
        first = act("Uncordon…", "uncordon", "Takes new claims again.", cordon)
    else:
        first = act("Cordon…", "cordon", f"No new claims. {stay}", cordon)
    until = f"No new claims; emptied by a deadline. {stay if held else ''}".strip()
    text = f"{NO_CLAIM} The member is removed at once."
    if held:
        ended = formatting.plural(held, "claim has", "claims have")
        text = f"Takes no new claims and is removed after {ended} ended."
    return [
        first,
        *evacuation,
        act("Drain…", "drain", until, may_drain),
        *([force] if held else []),
        *agent,
        act("Remove…", "remove", text, remove, is_dangerous=True),
    ]


def evacuation_actions(pool: Pool, card: MemberCard, why: str) -> list[Action]:
    """Actions for a load balancer with claims that can move to another member."""
    if layout_of(pool).ports is None:
        return []
    text = "Its claims move to other load balancers, and it takes no new ones."
    lost = "It is lost, and so are its claims." if card.lost_at is not None else ""
    if not card.is_evacuating:
        return [member_action(card, "Evacuate…", "evacuate", text, why or lost)]
    back = "No further claim moves; the claim that moves goes back."
    again = "Tries the claims again that could not move."
    return [
        member_action(card, "Undo evacuation…", "undo-evacuation", back, why),
        member_action(card, "Evacuate again…", "evacuate", again, why or lost),
    ]


class ReturnRow(NamedTuple):
    claim: EvacuatedClaim
    action: Action


def list_returns(
    identity: Identity, pool: Pool, member_id: int, claims: Iterable[EvacuatedClaim]
) -> list[ReturnRow]:
    """The claims that can go back to a member, with the action of each."""
    why = explain_missing_role(identity, "drain", pool.pk)
    return [
        ReturnRow(
            claim,
            Action(
                "Move back…",
                reverse("member-return-claim", args=[member_id, claim.id]),
                why=why,
            ),
        )
        for claim in claims
    ]


def describe_force_drain(pool: Pool, card: MemberCard) -> str:
    """The effect of a force drain on the claims that the member has now. Only agents run plans."""
    held = {cell.claim_id: cell.state for cell in card.held}
    found = []
    if running := sum(state == "held" for state in held.values()):
        effect = ""
        if has_agents(spec_of(pool)):
            effect = (
                ": running plans return to the queue; the outcome of running applies is unknown"
            )
        elif layout_of(pool).ports is not None:
            effect = ": their ports drain"
        found.append(f"Ends {formatting.plural(running, 'claim')} here{effect}.")
    if waiting := sum(state == "reserved" for state in held.values()):
        loses = "reserved plan loses its slot", "reserved plans lose their slots"
        found.append(f"{formatting.plural(waiting, *loses)}.")
    return " ".join(found) or f"{NO_CLAIM} The member is removed at once."


def agent_actions(identity: Identity, pool: Pool, card: MemberCard) -> list[Action]:
    """Actions on the agent of a member: restart and rotate the token where Berth starts the agent,
    create a token where an operator starts it.
    """
    provider, spec = known_providers().get(pool.provider), spec_of(pool)
    may_edit, act = (
        explain_missing_role(identity, "edit_member", pool.pk),
        partial(member_action, card),
    )
    token = act("Token…", "token", "Creates the token for the member’s heartbeat.", may_edit)
    token = replace(token, is_page=True)
    heartbeat = [] if has_agents(spec) or spec.liveness is None else [token]
    if provider is None or not provider.has_agents:
        return heartbeat
    if not provider.is_owner:
        return [replace(token, text="Creates a token and shows the commands that start the agent.")]
    why = explain_missing_role(identity, "cordon", pool.pk)
    if not why and card.state != "creating" and any(c.state == "held" for c in card.cells):
        why = "A task may be running here."
    if not why and card.is_leaving:
        why = "The member is being removed."
    process = "agent process" if has_agents(spec) else "pod or machine"
    text = f"Starts a new {process}; reserved slots stay reserved."
    found = [act("Restart…", "restart", text, why), *heartbeat]
    if has_agents(spec) and provider.rotates:
        away = "" if card.state == "ready" else "The agent gets a new token at its next start."
        text = "Gives the agent a new token; running tasks continue."
        found.append(act("Rotate token…", "rotate", text, may_edit or away))
    return found
