"""Record that an agent interrupted the program of a task. The program may finish its current
operations; the page of the claim names them.
"""

import json
from dataclasses import asdict, dataclass
from datetime import timedelta
from functools import partial

from django.db import transaction
from django.utils import timezone

from claims.statements import repeat
from claims.tasks.runs import agents_sql
from claims.tasks.runs.work_order import REPORT_START
from pools.config.fields import option, required
from pools.config.parsing import Faults, Integer, ListOf, Schema, Text, ValueType, kind_of
from pools.models import Member
from project.kernel.errors import Conflict
from project.kernel.events.log import record

LONGEST_NAMED, MOST_NAMED, DAY = 300, 20, 86_400


class RunningOperation(ValueType[str]):
    """The text of an operation. A long text is cut: a rejected report would be lost."""

    def read(self, value: object, where: str, faults: Faults) -> str | None:
        if isinstance(value, str):
            return value.replace("\0", "")[:LONGEST_NAMED]
        faults.add(where, f"This is {kind_of(value)}, not text.", "Put it in quotes.")
        return None

    def schema(self) -> Schema:
        return {"type": "string", "description": f"Cut to {LONGEST_NAMED} characters."}


@dataclass(frozen=True, slots=True)
class Interrupt:
    why: str = required(Text(LONGEST_NAMED), "")
    wait_s: int = required(Integer(0, DAY), "Seconds until the program is terminated.")
    waits_for: tuple[str, ...] = option(
        ListOf(RunningOperation(), "texts", MOST_NAMED, '["aws_instance.web: creating"]'),
        (),
        "Operations that the program still has to finish.",
    )
    more: int = option(Integer(0, 2**31 - 1), 0, "Number of further operations.")


def record_interrupt(
    *, claim_id: int, generation: int, member: Member, interrupt: Interrupt
) -> None:
    """Accepts also a claim that has ended: its slot drains until the program has finished. The
    event is written once.
    """
    about = asdict(interrupt)
    about["until"] = (timezone.now() + timedelta(seconds=about.pop("wait_s"))).isoformat()
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
