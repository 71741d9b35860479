"""Slots. The row of a slot is the hold: state, claim, ordinal and generation change only by named
statements.
"""

from django.db import models
from django.db.models import Q
from django.db.models.functions import Now

from pools.models import Member, Pool
from slots.rules import SLOT_CONSTRAINT
from slots.states import SLOT


class Slot(models.Model):
    # The foreign keys need no index: slot_free and slot_place begin with them.
    pool = models.ForeignKey(Pool, on_delete=models.PROTECT, related_name="slots", db_index=False)
    member = models.ForeignKey(
        Member, on_delete=models.PROTECT, related_name="slots", db_index=False
    )
    lane = models.CharField(max_length=16)  # the kind of use that the slot accepts
    number = models.IntegerField()  # the port (first of its segment), or 0, 1, 2
    # Order by the pool's placement, set in advance so that a bind counts no slots.
    rank = models.IntegerField(default=0, db_default=0)
    # Pool and member take claims; every change of either updates this column.
    is_open = models.BooleanField(default=True, db_default=True)
    state = SLOT.field()
    # Not a foreign key, because slots do not know claims; triggers check more.
    claim_id = models.BigIntegerField(null=True, blank=True)
    ordinal = models.SmallIntegerField(null=True, blank=True)
    generation = models.BigIntegerField(default=0, db_default=0)
    # The last holder: a draining slot drains for it, and it gets the slot again first.
    last_claim_id = models.BigIntegerField(null=True, blank=True)
    drain_until = models.DateTimeField(null=True, blank=True)
    due_at = models.DateTimeField(null=True, blank=True)
    # The last observation of the provider or the agent.
    observed = models.JSONField(default=dict, db_default=models.Value({}, models.JSONField()))
    changed_at = models.DateTimeField(db_default=Now())

    class Meta:
        constraints = [
            SLOT_CONSTRAINT.check(),
            models.UniqueConstraint(fields=["member", "lane", "number"], name="slot_place"),
            models.UniqueConstraint(
                fields=["claim_id", "ordinal"],
                condition=Q(claim_id__isnull=False),
                name="slot_seat",
            ),
        ]
        indexes = [
            models.Index(
                fields=["pool", "lane", "rank", "number"],
                condition=Q(state="idle", is_open=True),
                name="slot_free",
            ),
            models.Index(fields=["due_at"], condition=Q(due_at__isnull=False), name="slot_due"),
            models.Index(
                fields=["last_claim_id"], condition=Q(state="draining"), name="slot_drains_for"
            ),
        ]

    def __str__(self) -> str:
        return f"{self.member_id}/{self.lane} {self.number}"


class Quarantine(models.Model):
    """No claim gets the slot while this row exists. A table of its own, because the hot statements
    read slots.
    """

    # Not a foreign key: rows of slots are deleted by statements.
    slot_id = models.BigIntegerField(primary_key=True)
    pool_id = models.BigIntegerField()
    reason = models.TextField()
    by_user = models.CharField(max_length=80)
    at = models.DateTimeField(db_default=Now())

    class Meta:
        indexes = [models.Index(fields=["pool_id"], name="quarantine_of_pool")]


class UnsavedState(models.Model):
    """A Terraform state of which only the agent of a member has a copy. The member counts as
    occupied while this row exists.
    """

    # Not a foreign key: the writer holds locks that come after the member's in the lock order.
    member_id = models.BigIntegerField()
    claim_id = models.BigIntegerField()
    generation = models.BigIntegerField()
    noted_at = models.DateTimeField(db_default=Now())

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["claim_id", "generation"], name="unsaved_state_once")
        ]
        indexes = [models.Index(fields=["member_id"], name="unsaved_state_of_member")]

    def __str__(self) -> str:
        return f"state of claim {self.claim_id}"


class Departure(models.Model):
    """The slots that a claim has left by an evacuation. Its hold goes on under another generation,
    and its holder may still name this one. The claim may return while the slots drain.
    """

    generation = models.BigIntegerField(primary_key=True)  # in which the claim held the slots
    claim_id = models.BigIntegerField()
    current = models.BigIntegerField()  # generation of the hold since its latest move
    member_id = models.BigIntegerField()  # that is evacuated
    # The slots, with the ordinal of each; empty: the claim has returned to the member.
    left_slots = models.JSONField(default=dict)

    class Meta:
        indexes = [
            models.Index(fields=["claim_id"], name="departure_of_claim"),
            models.Index(fields=["member_id"], name="departure_from_member"),
        ]

    def __str__(self) -> str:
        return f"departure of claim {self.claim_id} from member {self.member_id}"


class Evacuation(models.Model):
    """A cordoned member; its claims move to other members, one at a time. The claim that moves
    leaves slots that serve on until its new ports are ready (`slots_outside`).
    """

    # Not a foreign key: the row goes before its member.
    member_id = models.BigIntegerField(primary_key=True)
    by = models.CharField(max_length=80)
    reason = models.TextField()
    stays = models.BooleanField()  # the empty member stays, cordoned; else it is removed
    was_cordoned = models.BooleanField()  # before the evacuation; it stays so after an undo
    since = models.DateTimeField(db_default=Now())
    due_at = models.DateTimeField(db_default=Now())  # the next step
    moved = models.IntegerField(default=0, db_default=0)  # claims
    failed_in_row = models.SmallIntegerField(default=0, db_default=0)
    # The claim that moves: the generation in which it held the slots that it leaves (a departure),
    # and since when it holds others.
    claim_id = models.BigIntegerField(null=True, blank=True)
    generation = models.BigIntegerField(null=True, blank=True)
    moved_at = models.DateTimeField(null=True, blank=True)
    was_ready = models.BooleanField(default=False, db_default=False)  # its ports, before it moved
    waits_for = models.TextField(blank=True, default="")  # why the next step is not taken yet
    # The claims that stay for now, by id: code, reason, way out, and the time of a failed move.
    stuck = models.JSONField(default=dict)
    wanted = models.JSONField(default=dict)  # slots that are missing elsewhere, by lane
    is_scattered = models.BooleanField(default=False, db_default=False)  # free ones do not fit
    planned_at = models.DateTimeField(null=True, blank=True)  # when no claim could move

    def __str__(self) -> str:
        return f"evacuation of member {self.member_id}"
