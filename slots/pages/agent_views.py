"""Pages of agents: a new token with the commands that start the agent, token rotation, restart."""

from django.http import HttpResponse
from django.urls import reverse
from django.views.decorators.debug import sensitive_variables

from pools.access.permissions import require
from pools.config.spec import PoolSpec
from pools.lifecycle.selectors import spec_of
from pools.models import Member
from pools.pages.base import PageRequest, confirm, page, signed_in
from pools.providers.base import has_agents, known_providers
from project.kernel.errors import BerthError, FieldError, NotFound
from project.kernel.ui import formatting
from project.kernel.ui.confirm import ConfirmInput, Done, Field, Question
from slots.api.agents import build_start_commands, make_token, may_sign_in
from slots.members.restart import restart_member
from slots.members.token_rotation import order_token, rotates
from slots.pages.dashboard_queries import MemberCard
from slots.pages.views import member_for


@signed_in
@sensitive_variables("secret", "lines")
def token(request: PageRequest, member_id: int) -> HttpResponse:
    """The page that creates a token and shows it once."""
    member = Member.objects.select_related("pool").filter(pk=member_id).first()
    if (
        member is None
        or not request.identity.may("read", member.pool_id)
        or not may_sign_in(member)
    ):
        raise NotFound(
            f"Member {member_id} does not exist or has no token.",
            way_out="List the members of the pool.",
        )
    require(request.identity, "edit_member", member.pool)
    lines, problems = list[str](), list[FieldError]()
    if request.method == "POST":
        try:
            secret = make_token(
                member,
                reason=request.POST.get("reason", "").strip()[:500],
                ends_previous="ends_previous" in request.POST,
            )
            lines = build_start_commands(request.build_absolute_uri("/"), member, secret)
        except BerthError as error:
            problems = list(error.fields) or [FieldError("", error.detail, error.way_out)]
    context = {
        "member": member,
        "pool": member.pool,
        "lines": lines,
        "problems": problems,
        "is_ours": rotates(spec_of(member.pool)),
        "is_agent": has_agents(spec_of(member.pool)),
    }
    return page(
        request, "slots/member_token_page.html", "overview", 409 if problems else 200, **context
    )


@signed_in
def restart(request: PageRequest, member_id: int) -> HttpResponse:
    pool, card = member_for(request, member_id, "cordon")
    what = "agent" if has_agents(spec_of(pool)) else "member"
    question = Question(
        title=f"Restart {card.name}",
        verb="Restart",
        intro=(
            f"The {what} is stopped and started again. Reserved slots stay reserved; the count of "
            "failed starts is reset."
        ),
        facts=[
            ("State", card.word),
            ("Incarnation", f"{card.incarnation}, then {card.incarnation + 1}"),
        ],
        nothing=why_no_restart(pool.provider, card),
    )

    def perform(given: ConfirmInput) -> Done:
        restart_member(member_id=card.id, reason=given.reason)
        return Done(
            f"{'The agent of ' * (what == 'agent')}{card.name} is being restarted.",
            reverse("pool", args=[pool.name]),
        )

    return confirm(request, question, perform, "overview")


@signed_in
def rotate(request: PageRequest, member_id: int) -> HttpResponse:
    pool, card = member_for(request, member_id, "edit_member")
    question = Question(
        title=f"Rotate the token of {card.name}",
        verb="Rotate",
        intro="The agent gets a new token while it works. No task is interrupted.",
        facts=[
            (
                "Token",
                f"created {formatting.exact(card.token_since)}" if card.token_since else "none yet",
            )
        ],
        fields=[
            Field(
                "previous",
                "Previous token",
                "select",
                value="overlap",
                options=(
                    ("overlap", "valid for one hour more"),
                    ("ends", "revoked as soon as the new one is used (it has leaked)"),
                ),
            )
        ],
        note="The event log records the rotation, not the token.",
        nothing=why_no_rotation(spec_of(pool), card),
    )

    def perform(given: ConfirmInput) -> Done:
        order_token(
            member_id=card.id,
            reason=given.reason,
            ends_previous=given.values["previous"] == "ends",
        )
        return Done(f"{card.name} gets a new token.", reverse("pool", args=[pool.name]))

    return confirm(request, question, perform, "overview")


def why_no_rotation(spec: PoolSpec, card: MemberCard) -> str:
    if not rotates(spec):
        return "Berth does not deliver tokens to this agent: create one on the member’s page."
    return (
        ""
        if card.state == "ready"
        else f"It is {card.word}: the agent gets a new token at its next start."
    )


def why_no_restart(provider: str, card: MemberCard) -> str:
    """Why a restart is impossible; empty: possible. `restart_member` checks the rest under its
    lock.
    """
    known = known_providers().get(provider)
    if known is None or not known.is_owner or not known.has_agents:
        return "Berth does not start this agent."
    if card.is_leaving:
        return "The member is being removed."
    return ""
