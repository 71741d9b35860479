"""Record that an agent interrupted the program of a task. The program may finish its current
operations; the page of the claim names them.
"""

import json
from collections.abc import Sequence
from datetime import timedelta
from functools import partial

from django.db import transaction
from django.utils import timezone

from claims.statements import repeat
from claims.tasks.runs import agents_sql
from claims.tasks.runs.work_order import REPORT_START
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
    """Accepts also a claim that has ended: its slot drains until the program has finished. The
    event is written once.
    """
    until = timezone.now() + timedelta(seconds=wait_s)
    about = {"why": why, "until": until.isoformat(), "waits_for": list(waits_for), "more": more}
    repeat(partial(_record, claim_id, generation, member, about))


def _record(claim_id: int, generation: int, member: Member, about: dict[str, object]) -> None:
    with transaction.atomic():
        row = agents_sql.note_interrupt(
            claim=claim_id,
            generation=generation,
            member=member.pk,
            interrupt=json.dumps({"interrupt": about}),
        )
        if row is None:
            text = f"Generation {generation} of claim {claim_id} never started on {member.name}."
            raise Conflict(text, code="not_started", way_out=REPORT_START)
        if not row.is_known:
            record(
                "interrupt", pool_id=member.pool_id, member_id=member.pk, claim_id=claim_id,
                generation=generation, reason=str(about["why"]),
            )  # fmt: skip
