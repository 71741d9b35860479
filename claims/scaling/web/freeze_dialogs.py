"""Dialogs that lift a freeze window and restore it."""

from datetime import UTC, datetime

from django.http import HttpResponse
from django.utils import timezone

from claims.scaling import orders
from claims.scaling.decision_cards import ScalingOverview
from claims.scaling.freeze_lifts import lift_of, list_freezes, list_lifts
from claims.scaling.web.views import is_ahead, scaled
from pools.models import Pool
from pools.pages.base import PageRequest, confirm, signed_in
from pools.scaling import Occurrence
from project.kernel.ui import formatting
from project.kernel.ui.confirm import ConfirmInput, Done, Question
from project.kernel.validation import parse_moment


@signed_in
def unfreeze(request: PageRequest, name: str) -> HttpResponse:
    """Lift the open freeze window, or the one that `?starts=` names."""
    pool, overview = scaled(request, name)
    assert overview.subject is not None
    starts_at = read_starts(request)
    if starts_at is not None:
        return unfreeze_named(request, pool, overview, starts_at)
    waiting = overview.subject.snapshot.claims
    question = Question(
        title=f"Lift the freeze of {pool.name}",
        verb="Lift freeze",
        intro=(
            "Lifts the freeze until the current window ends: claims are bound and members are "
            "created. The next window freezes the pool as usual."
        ),
        facts=[
            ("Active freeze", overview.subject.snapshot.limits.frozen or "none"),
            (
                "Waiting",
                (
                    f"{formatting.plural(waiting, 'claim')} can be bound at once while "
                    "slots are free"
                ),
            ),
        ],
        is_dangerous=True,
        nothing="" if overview.subject.snapshot.limits.frozen else "The pool is not frozen.",
    )

    def perform(given: ConfirmInput) -> Done:
        orders.lift_freeze(pool_id=pool.pk, reason=given.reason)
        return Done(f"The current freeze of {pool.name} is lifted.")

    return confirm(request, question, perform, "overview")


def unfreeze_named(
    request: PageRequest, pool: Pool, overview: ScalingOverview, starts_at: datetime
) -> HttpResponse:
    named = find_freeze(overview, starts_at)
    is_lifted = lift_of(list_lifts([pool.pk]), pool.pk, starts_at) is not None
    question = Question(
        title=f"Lift a freeze of {pool.name}",
        verb="Lift freeze",
        href=request.get_full_path(),
        intro=(
            "Lifts this freeze from its start to its end: claims are bound and the pool scales as "
            "usual. The next window freezes the pool again."
        ),
        facts=freeze_facts(named),
        is_dangerous=True,
        note="Can be undone with Restore freeze.",
        nothing="This freeze is already lifted."
        if is_lifted
        else ""
        if named
        else f"No freeze of {pool.name} begins then.",
    )

    def perform(given: ConfirmInput) -> Done:
        orders.lift_freeze(pool_id=pool.pk, reason=given.reason, starts_at=starts_at)
        return Done(f"This freeze of {pool.name} is lifted.")

    return confirm(request, question, perform, "scaling")


@signed_in
def refreeze(request: PageRequest, name: str) -> HttpResponse:
    """Restore the freeze window that `?starts=` names."""
    pool, overview = scaled(request, name)
    starts_at = read_starts(request) or timezone.now()
    named, lift = (
        find_freeze(overview, starts_at),
        lift_of(list_lifts([pool.pk]), pool.pk, starts_at),
    )
    is_lifted = lift is not None or (
        named is not None and not is_ahead(starts_at) and is_ahead(pool.unfrozen_until)
    )
    question = Question(
        title=f"Restore the freeze of {pool.name}",
        verb="Restore freeze",
        href=request.get_full_path(),
        intro=(
            "The window freezes the pool as configured: no claims are bound and idle members are "
            "removed. Running and reserved claims stay."
        ),
        facts=[
            *freeze_facts(named),
            *([("Lifted by", f"{lift.by} “{lift.reason}”")] if lift is not None else []),
        ],
        reason="optional",
        nothing="" if is_lifted else "This freeze is not lifted.",
    )

    def perform(given: ConfirmInput) -> Done:
        orders.refreeze_pool(pool_id=pool.pk, reason=given.reason, starts_at=starts_at)
        return Done(f"This freeze of {pool.name} is restored.")

    return confirm(request, question, perform, "scaling")


def read_starts(request: PageRequest) -> datetime | None:
    """The start that the address names. A malformed value returns a time at which no window
    begins.
    """
    text = request.GET.get("starts", "")
    if not text:
        return None
    found = parse_moment(text) if len(text) < 40 else None
    return (
        found
        if found is not None and found.tzinfo is not None
        else datetime.min.replace(tzinfo=UTC)
    )


def find_freeze(overview: ScalingOverview, starts_at: datetime) -> Occurrence | None:
    assert overview.subject is not None
    freezes = list_freezes(overview.subject.spec.scaling, overview.subject.row.moment)
    return next((each for each in freezes if each.start == starts_at), None)


def freeze_facts(named: Occurrence | None) -> list[tuple[str, str]]:
    if named is None:
        return []
    return [
        ("Window", named.window.words),
        ("From", formatting.exact(named.start)),
        ("To", formatting.exact(named.end)),
    ]
