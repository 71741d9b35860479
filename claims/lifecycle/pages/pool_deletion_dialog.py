"""The dialog that deletes a pool with its claims."""

from django.http import HttpResponse

from claims.allocation.selectors import count_live_claims, list_live_claims
from claims.lifecycle.pages.claim_dialogs import SHOWN, cancelled
from claims.lifecycle.pool_deletion import delete_pool
from pools.models import Pool
from pools.pages.base import PageRequest, confirm, pool_for, signed_in
from project.kernel.ui import formatting
from project.kernel.ui.confirm import ConfirmInput, Done, Question
from slots.pages.dashboard_queries import count_members, count_slots


@signed_in
def delete(request: PageRequest, name: str) -> HttpResponse:
    pool = pool_for(request.identity, name, "configure")
    live = list_live_claims(pool.pk, limit=SHOWN)
    count = count_live_claims(pool.pk)
    slots, members = count_slots([pool.pk])[pool.pk], count_members([pool.pk])[pool.pk]
    rows = [cancelled(claim) for claim in live]
    question = Question(
        title=f"Delete {pool.name}",
        verb="Delete pool",
        intro=f"No more claims are bound. Its {formatting.plural(count, 'claim is', 'claims are')} "
        "cancelled, and the pool is removed with its last member."
        if count
        else (
            "No claim holds a slot of this pool. No more claims are bound, and the pool is "
            "removed with its members."
        ),
        affected=rows,
        affected_more=max(0, count - len(rows)),
        facts=[
            ("Slots", f"{slots.total:,} removed"),
            (
                "Members",
                f"{members.there} removed; Berth deletes only external resources that it created",
            ),
            ("Events", "are kept"),
        ],
        typed=pool.name,
        is_dangerous=True,
        note="Cannot be undone.",
        nothing="The pool is already being deleted." if pool.state == "deleting" else "",
    )

    def perform(given: ConfirmInput) -> Done:
        delete_pool(pool.name, cascade=count > 0, reason=given.reason)
        gone = not Pool.objects.filter(pk=pool.pk).exclude(state="gone").exists()
        return Done(
            f"Pool {pool.name} was deleted."
            if gone
            else f"Pool {pool.name} is being deleted and is removed with its last member.",
            "/",
        )

    return confirm(request, question, perform, "overview")
