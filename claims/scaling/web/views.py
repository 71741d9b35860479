"""Dialogs for orders to the scaler: pin, pause, grow, roll. Each shows the present decision and the
affected members.
"""

from datetime import datetime, timedelta

from django.http import HttpResponse
from django.utils import timezone

from claims.scaling import orders, roll_orders
from claims.scaling.decision_cards import (
    RollOverview,
    ScalingOverview,
    read_roll,
    read_scaling_overview,
)
from claims.scaling.scaler import not_scaled
from pools.models import Pool
from pools.pages.base import PageRequest, confirm, pool_for, signed_in
from pools.pages.length import length_field, read_length
from pools.scaling.victims import choose
from project.kernel.errors import Conflict, wrong_field
from project.kernel.ui import formatting
from project.kernel.ui.confirm import Affected, ConfirmInput, Done, Field, Question

MAX_ORDER_SECONDS = 366 * 86400.0
SHOWN = 20


def scaled(request: PageRequest, name: str) -> tuple[Pool, ScalingOverview]:
    pool = pool_for(request.identity, name, "scale")
    overview = read_scaling_overview(pool, limit=1)
    if overview.subject is None:
        raise not_scaled(pool.name)
    return pool, overview


def read_until(given: ConfirmInput) -> datetime:
    return timezone.now() + timedelta(seconds=read_length(given, MAX_ORDER_SECONDS))


def is_ahead(moment: datetime | None) -> bool:
    return moment is not None and moment > timezone.now()


def is_count(text: str) -> bool:
    return text.isascii() and text.isdecimal() and len(text) < 7


def read_count(given: ConfirmInput) -> int:
    text = given.values["count"]
    if not is_count(text):
        raise wrong_field("count", f"{text[:20]} is not a whole number.", "Use one like 4.")
    return int(text)


def now_facts(overview: ScalingOverview) -> list[tuple[str, str]]:
    subject, now = overview.subject, overview.now
    assert subject is not None and now is not None  # `scaled` checks it
    limits = subject.snapshot.limits
    return [
        ("Members", f"{len(subject.snapshot.there)} of {limits.low} to {limits.high}"),
        ("Current decision", f"{now.words}: {now.reason}"),
    ]


@signed_in
def pin(request: PageRequest, name: str) -> HttpResponse:
    pool, overview = scaled(request, name)
    assert overview.subject is not None
    there = len(overview.subject.snapshot.there)
    text = request.POST.get("count") or str(there)
    wanted = int(text) if is_count(text) else there
    going, _, _ = choose(overview.subject.snapshot.members, max(0, there - wanted), may_be_new=True)
    leave = [
        Affected(
            j.name,
            f"/pools/{pool.name}/?member={j.name}",
            j.why,
            ("idle", "idle"),
            ("deleting", "removed"),
        )
        for j in going
    ]
    question = Question(
        title=f"Pin {pool.name}",
        verb="Pin",
        intro=(
            "Keeps this number of members until then instead of the policy's. The maximum and "
            "freezes still apply; members with running or reserved claims are removed only once "
            "they are idle."
        ),
        fields=[
            Field(
                "count",
                "Members",
                "number",
                str(there),
                f"0 to {pool.max_members}; {there} now",
                is_needed=True,
            ),
            length_field("2h"),
        ],
        affected=leave[:SHOWN] if wanted < there else (),
        affected_more=max(0, len(leave) - SHOWN),
        each="member",
        last="",
        facts=[
            *now_facts(overview),
            (
                "Removable now",
                (
                    f"{formatting.plural(overview.can_go, 'member')}: other members are removed "
                    "once they are idle"
                ),
            ),
        ],
        note="Can be undone at any time with Unpin.",
    )

    def perform(given: ConfirmInput) -> Done:
        count = read_count(given)
        orders.pin_pool(pool_id=pool.pk, count=count, until=read_until(given), reason=given.reason)
        return Done(
            f"{pool.name} is pinned to {formatting.plural(count, 'member')} for "
            f"{given.values['for']}."
        )

    return confirm(request, question, perform, "overview")


@signed_in
def unpin(request: PageRequest, name: str) -> HttpResponse:
    pool, overview = scaled(request, name)
    question = Question(
        title=f"Unpin {pool.name}",
        verb="Unpin",
        intro="The policy decides the number of members again.",
        facts=[("Pinned because", f"“{pool.pin_reason}”"), *now_facts(overview)[:1]],
        reason="optional",
        nothing="" if pool.pin_count is not None else "The pool is not pinned.",
    )

    def perform(given: ConfirmInput) -> Done:
        orders.unpin_pool(pool_id=pool.pk, reason=given.reason)
        return Done(f"{pool.name} follows its policy again.")

    return confirm(request, question, perform, "overview")


@signed_in
def pause(request: PageRequest, name: str) -> HttpResponse:
    pool, overview = scaled(request, name)
    question = Question(
        title=f"Pause the scaler in {pool.name}",
        verb="Pause scaler",
        intro=(
            "No member is created or removed until then. Claims are bound as usual; claims that "
            "need a new member keep waiting."
        ),
        fields=[length_field("1h")],
        facts=now_facts(overview),
        note="Can be ended at any time with Resume.",
        nothing="The scaler is already paused." if is_ahead(pool.scaling_paused_until) else "",
    )

    def perform(given: ConfirmInput) -> Done:
        orders.pause_scaling(pool_id=pool.pk, until=read_until(given), reason=given.reason)
        return Done(f"The scaler of {pool.name} is paused for {given.values['for']}.")

    return confirm(request, question, perform, "overview")


@signed_in
def resume(request: PageRequest, name: str) -> HttpResponse:
    pool, overview = scaled(request, name)
    question = Question(
        title=f"Resume the scaler in {pool.name}",
        verb="Resume scaler",
        intro="The scaler decides again at once.",
        facts=[("Paused because", f"“{pool.scaling_pause_reason}”"), *now_facts(overview)[:1]],
        reason="optional",
        nothing="" if pool.scaling_paused_until else "The scaler is not paused.",
    )

    def perform(given: ConfirmInput) -> Done:
        orders.resume_scaling(pool_id=pool.pk, reason=given.reason)
        return Done(f"The scaler of {pool.name} is resumed.")

    return confirm(request, question, perform, "overview")


@signed_in
def grow(request: PageRequest, name: str) -> HttpResponse:
    pool, overview = scaled(request, name)
    assert overview.subject is not None
    snapshot = overview.subject.snapshot
    room = snapshot.limits.high - len(snapshot.members)
    frozen = (
        f"The pool is frozen: {snapshot.limits.frozen}. Lift the freeze first."
        if snapshot.limits.frozen
        else ""
    )
    full = (
        f"The pool has {len(snapshot.members)} of {snapshot.limits.high} members. Raise the "
        "maximum first."
    )
    question = Question(
        title=f"Create members in {pool.name}",
        verb="Create",
        intro=(
            "Creates members at once, beyond the number of the policy. The policy may remove them "
            "once they are idle."
        ),
        fields=[Field("count", "Members", "number", "1", f"At most {room}", is_needed=True)],
        facts=[*now_facts(overview), ("Slots", f"{sum(snapshot.each.values())} each")],
        note="No claim is moved.",
        nothing=frozen or ("" if room > 0 else full),
    )

    def perform(given: ConfirmInput) -> Done:
        made = orders.grow_pool(pool_id=pool.pk, count=read_count(given), reason=given.reason)
        return Done(
            f"{formatting.sentence([judged.name for judged in made.chosen])} "
            f"{'is' if made.delta == 1 else 'are'} being created."
        )

    return confirm(request, question, perform, "overview")


def rolled(request: PageRequest, name: str) -> tuple[Pool, RollOverview]:
    pool = pool_for(request.identity, name, "scale")
    overview = read_roll(pool)
    if overview is None:
        raise Conflict(
            f"Pool {pool.name} is {pool.state}.",
            way_out="Wait until its provider has been checked.",
        )
    return pool, overview


@signed_in
def roll(request: PageRequest, name: str) -> HttpResponse:
    pool, overview = rolled(request, name)
    affected = [
        Affected(
            m.name,
            f"/pools/{pool.name}/?member={m.name}",
            m.blocked or "idle",
            ("outdated", "outdated"),
            ("creating", "renewed"),
        )
        for m in overview.members
    ]
    question = Question(
        title=f"Renew outdated members of {pool.name}",
        verb="Renew members",
        intro=(
            "Renews members one by one, each once it has no running or reserved claim. Below "
            "the maximum, a new member is created first. The roll stops if a new member is not "
            "ready in time."
        ),
        affected=affected[:SHOWN],
        affected_more=max(0, len(affected) - SHOWN),
        each="member",
        last="",
        facts=[
            ("Now", overview.words),
            ("Stopped because", pool.roll_stop_reason or "not stopped"),
        ],
        note="Can be paused at any time.",
        nothing=""
        if affected or overview.is_under_way or pool.roll_stopped_at
        else "No member is outdated.",
    )

    def perform(given: ConfirmInput) -> Done:
        roll_orders.order_roll(pool_id=pool.pk, reason=given.reason)
        return Done(f"Outdated members of {pool.name} are renewed, one by one.")

    return confirm(request, question, perform, "scaling")


@signed_in
def pause_roll(request: PageRequest, name: str) -> HttpResponse:
    pool, overview = rolled(request, name)
    question = Question(
        title=f"Pause the roll of {pool.name}",
        verb="Pause roll",
        intro=(
            "No member is renewed until then. Scaling continues, new members are created from the "
            "current configuration."
        ),
        fields=[length_field("1h")],
        facts=[
            ("Outdated", formatting.plural(len(overview.members), "member")),
            ("Current decision", overview.words),
        ],
        note="Can be ended at any time with Resume roll.",
        nothing="The roll is already paused." if is_ahead(pool.roll_paused_until) else "",
    )

    def perform(given: ConfirmInput) -> Done:
        roll_orders.pause_roll(pool_id=pool.pk, until=read_until(given), reason=given.reason)
        return Done(f"The roll of {pool.name} is paused for {given.values['for']}.")

    return confirm(request, question, perform, "scaling")


@signed_in
def resume_roll(request: PageRequest, name: str) -> HttpResponse:
    pool, overview = rolled(request, name)
    question = Question(
        title=f"Resume the roll of {pool.name}",
        verb="Resume roll",
        intro="Outdated members are renewed again, one by one, once they are idle.",
        facts=[
            ("Paused because", f"“{pool.roll_pause_reason}”"),
            ("Outdated", formatting.plural(len(overview.members), "member")),
        ],
        reason="optional",
        nothing="" if pool.roll_paused_until else "The roll is not paused.",
    )

    def perform(given: ConfirmInput) -> Done:
        roll_orders.resume_roll(pool_id=pool.pk, reason=given.reason)
        return Done(f"The roll of {pool.name} is resumed.")

    return confirm(request, question, perform, "scaling")
