"""An agent has interrupted the program of a task, and the program may finish what it began: kept
with its run, for its page.
"""

import json
from collections.abc import Sequence
from datetime import timedelta
from functools import partial

from django.db import transaction
from django.utils import timezone

from claims.statements import repeat
from claims.tasks.runs import agents_sql
from pools.models import Member
from project.kernel.errors import Conflict
from project.kernel.events.log import record


def record_interrupt(
    *,
    claim_id: int,
    generation: int,
    member: Member,
    why: str,
    wait_s: float,
    waits_for: Sequence[str] = (),
    more: int = 0,
) -> None:
    """Also of a claim that has ended: its slot drains until the program has finished. The event
    is written once.
    """
    until = timezone.now() + timedelta(seconds=wait_s)
    told = {"why": why, "until": until.isoformat(), "waits_for": list(waits_for), "more": more}
    repeat(partial(_record, claim_id, generation, member, told))


def _record(claim_id: int, generation: int, member: Member, told: dict[str, object]) -> None:
    with transaction.atomic():
        row = agents_sql.note_interrupt(
            claim=claim_id,
            generation=generation,
            member=member.pk,
            interrupt=json.dumps({"interrupt": told}),
        )
        if row is None:
            text = f"Generation {generation} of claim {claim_id} was never begun on {member.name}."
            raise Conflict(text, code="not_started", way_out="Say that it starts before it runs.")
        if not row.is_known:
            record(
                "interrupt", pool_id=member.pool_id, member_id=member.pk, claim_id=claim_id,
                generation=generation, reason=str(told["why"]),
            )  # fmt: skip
