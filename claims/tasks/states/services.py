"""Terraform states that a backend did not accept. The agent keeps the state and uploads it. Until
the server has the state, the agent has the only copy, and its member counts as occupied
(slots_unsavedstate). The server keeps the state encrypted until the workspace is settled.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from django.db import transaction

from claims.statements import repeat
from claims.tasks.files.sealed_files import delete_file, read_file, save_file
from claims.tasks.states import rescued_sql
from pools.config.fields import option, required
from pools.config.parsing import Integer
from pools.lifecycle.selectors import lock_member
from pools.models import Member
from project.kernel.actor import current_actor
from project.kernel.errors import Conflict, NotFound
from project.kernel.events.log import record
from project.kernel.events.notify import publish
from project.kernel.events.retention import retention_rule
from project.kernel.validation import require_reason
from slots.members import members_sql

KIND = "state"
ID = Integer(1, 2**63 - 1)


@dataclass(frozen=True, slots=True)
class ReportedState:
    """A state that only the reporting agent has."""

    claim: int = required(ID, "")
    generation: int = required(ID, "")
    size: int = option(Integer(0, 2**63 - 1), 0, "")


def record_rescued(*, claim_id: int, generation: int, member: Member, size: int) -> bool:
    """Records that only the agent of this member has the state. The caller's transaction also frees
    the slot of the apply, so the member is never empty in between. False if the apply did not run
    on the member or the state is known.
    """
    if not rescued_sql.note_rescued(
        claim=claim_id, generation=generation, member=member.pk, size=size
    ):
        return False
    members_sql.note_unsaved(claim=claim_id, generation=generation, member=member.pk)
    record(
        "state_rescued", pool_id=member.pool_id, member_id=member.pk, claim_id=claim_id,
        generation=generation, reason="the backend did not take the state; only the agent has it",
        data={"size": size},
    )  # fmt: skip
    publish("pools")
    return True


def sync_rescued(*, member: Member, boot: str, reported: Sequence[ReportedState]) -> None:
    """Takes over the list of states of an agent that starts. A state of an earlier start that is
    not in the list is lost.
    """
    named = {(state.claim, state.generation): state.size for state in reported}
    if not named and not rescued_sql.known_before(member=member.pk, boot=boot):
        return

    def sync() -> None:
        with transaction.atomic():
            lock_member(member.pk)  # a removal of the member comes first or sees the states
            for (claim_id, generation), size in sorted(named.items()):
                record_rescued(claim_id=claim_id, generation=generation, member=member, size=size)
            for row in rescued_sql.known_before(member=member.pk, boot=boot):
                if (row.claim_id, row.generation) not in named:
                    members_sql.delete_unsaved(claim=row.claim_id, generation=row.generation)
                    record(
                        "state_lost", pool_id=member.pool_id, member_id=member.pk,
                        claim_id=row.claim_id, generation=row.generation,
                        reason="the agent started again and does not find it",
                    )  # fmt: skip

    repeat(sync)


def store_state(*, claim_id: int, generation: int, member: Member, data: bytes) -> bool:
    """Stores an uploaded state and replaces an earlier upload. False if an operator has given the
    state up.
    """

    def read_and_record() -> rescued_sql.FindRescuedRow | None:
        with transaction.atomic():
            record_rescued(claim_id=claim_id, generation=generation, member=member, size=len(data))
            return rescued_sql.find_rescued(claim=claim_id, generation=generation)

    before = repeat(read_and_record)
    if before is None:
        raise Conflict(
            f"No apply of claim {claim_id} ran here under generation {generation}.",
            code="not_yours",
            way_out="Keep the file.",
        )
    if before.settled_at is not None:
        return False
    file = save_file(KIND, f"{claim_id}-{generation}", data)
    if repeat(partial(_store, claim_id, generation, member, file, data)):
        if before.file and before.file != file:
            delete_file(before.file)
        return True
    delete_file(file)
    return False


def _store(claim_id: int, generation: int, member: Member, file: str, data: bytes) -> bool:
    digest = hashlib.sha256(data).digest()
    with transaction.atomic():
        if not rescued_sql.keep_rescued(
            claim=claim_id,
            generation=generation,
            file=file,
            size=len(data),
            digest=digest,
        ):
            return False
        members_sql.delete_unsaved(claim=claim_id, generation=generation)
        record(
            "state_kept", pool_id=member.pool_id, member_id=member.pk, claim_id=claim_id,
            generation=generation, reason="the server has the rescued state, encrypted",
            data={"size": len(data), "digest": digest.hex()},
        )  # fmt: skip
        publish("pools", "slots", "events")
    return True


def read_state(*, claim_id: int, generation: int) -> bytes:
    """Returns the state for an approver and records the download."""
    with transaction.atomic():
        row = rescued_sql.find_rescued(claim=claim_id, generation=generation)
        if row is None or not row.file or row.settled_at is not None:
            raise NotFound(
                f"There is no rescued state of claim {claim_id}, generation "
                f"{generation}, to download.",
                code="no_state",
                way_out="A rescued state is deleted when its workspace is settled.",
            )
        data = read_file(row.file)
        record(
            "state_download", pool_id=row.pool_id, member_id=row.member_id, claim_id=claim_id,
            generation=generation, data={"size": len(data)},
        )  # fmt: skip
        publish("events")
    return data


def discard_state(*, claim_id: int, generation: int, reason: str) -> None:
    """Deletes a rescued state on the server. The agent deletes its copy at its next call."""
    note = require_reason(reason)

    def discard() -> list[str]:
        with transaction.atomic():
            rows = rescued_sql.discard_rescued(
                claim=claim_id,
                generation=generation,
                by=current_actor(),
                reason=note,
            )
            if not rows:
                raise NotFound(
                    f"There is no rescued state of claim {claim_id}, generation {generation}.",
                    code="no_state",
                )
            return end_states(rows, note)

    for file in repeat(discard):
        delete_file(file)


def resolve_states(workspace: int, reason: str) -> list[str]:
    """Ends the states of a workspace in the transaction that settles it. Returns the files to
    delete after the commit.
    """
    return end_states(
        rescued_sql.settle_rescued(workspace=workspace, by=current_actor(), reason=reason),
        reason,
    )


def end_states(rows: Sequence[rescued_sql.SettleRescuedRow], reason: str) -> list[str]:
    for row in rows:
        members_sql.delete_unsaved(claim=row.claim_id, generation=row.generation)
        record(
            "state_discard",
            pool_id=row.pool_id,
            member_id=row.member_id,
            claim_id=row.claim_id,
            generation=row.generation,
            reason=reason,
        )
    if rows:
        publish("pools", "slots", "events")
    return [row.file for row in rows if row.file]


@retention_rule("settled states", days=90)
def delete_settled_states(days: float, chunk: int) -> int:
    """Deletes the rows of states that were settled long ago."""
    return len(rescued_sql.delete_settled(chunk, days=days))
