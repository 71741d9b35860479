"""The tables of the kernel. They have no foreign keys, because their rows outlive the rows that
they name.

All defaults are in the database, because hot statements write events and operations in raw SQL.
"""

from django.db import models
from django.db.models import F, Q
from django.db.models.functions import Now

from .db.fields import TransactionIdField

CLOCK = models.Func(function="clock_timestamp", output_field=models.DateTimeField())
THIS_TRANSACTION = models.Func(function="pg_current_xact_id", output_field=TransactionIdField())


class Event(models.Model):
    """An event, written in the transaction of its change. The table is append-only: a trigger
    rejects changes.

    The position of an event is (tx, id), because ids are not in the order of commits. Readers see
    an event when its tx is below the snapshot's xmin.
    """

    tx = TransactionIdField(db_default=THIS_TRANSACTION, editable=False)
    at = models.DateTimeField(db_default=CLOCK, editable=False)
    verb = models.CharField(max_length=24)
    pool_id = models.BigIntegerField(null=True, blank=True)
    member_id = models.BigIntegerField(null=True, blank=True)
    slot_id = models.BigIntegerField(null=True, blank=True)
    claim_id = models.BigIntegerField(null=True, blank=True)
    generation = models.BigIntegerField(null=True, blank=True)
    before = models.CharField(max_length=16, blank=True, db_default="")
    after = models.CharField(max_length=16, blank=True, db_default="")
    actor = models.CharField(max_length=80)
    reason = models.TextField(blank=True, db_default="")
    data = models.JSONField(null=True, blank=True)

    class Meta:
        indexes = [
            models.Index(fields=["tx", "id"], name="event_position"),
            models.Index(
                fields=["slot_id", "id"], name="event_slot", condition=Q(slot_id__isnull=False)
            ),
            models.Index(
                fields=["claim_id", "id"], name="event_claim", condition=Q(claim_id__isnull=False)
            ),
            models.Index(
                fields=["pool_id", "id"], name="event_pool", condition=Q(pool_id__isnull=False)
            ),
        ]

    def __str__(self) -> str:
        return f"{self.at:%Y-%m-%d %H:%M:%S} {self.verb} by {self.actor}"


class Operation(models.Model):
    """The outbox: a call that makes an outside system equal to the rows.

    `due_at` is the lease of the worker that performs the operation, and the back-off after an
    error. After a permanent error the row stays open and visible until a person retries it.
    """

    queue = models.CharField(
        max_length=40,
        db_default="default",
        help_text="Who performs it: one queue for each provider.",
    )
    lane = models.CharField(
        max_length=80, help_text="One writer at a time: a load balancer, a member."
    )
    kind = models.CharField(max_length=16)
    pool_id = models.BigIntegerField(null=True, blank=True)
    member_id = models.BigIntegerField(null=True, blank=True)
    claim_id = models.BigIntegerField(null=True, blank=True)
    generation = models.BigIntegerField(null=True, blank=True)
    body = models.JSONField(blank=True, db_default=models.Value({}, models.JSONField()))
    attempts = models.IntegerField(
        db_default=0, help_text="Also the fence: only the attempt that took it may settle it."
    )
    created_at = models.DateTimeField(db_default=Now(), editable=False)
    due_at = models.DateTimeField(db_default=Now())
    done_at = models.DateTimeField(null=True, blank=True)
    error = models.TextField(blank=True, db_default="")
    error_code = models.CharField(max_length=16, blank=True, db_default="")
    seen_by = models.CharField(
        max_length=80, blank=True, db_default="", help_text="Who has seen its permanent error."
    )

    class Meta:
        indexes = [
            models.Index(
                fields=["lane", "due_at"], name="operation_lane", condition=Q(done_at__isnull=True)
            ),
            models.Index(
                fields=["queue", "due_at"], name="operation_due", condition=Q(done_at__isnull=True)
            ),
            models.Index(
                fields=["done_at"], name="operation_done", condition=Q(done_at__isnull=False)
            ),
            models.Index(
                fields=["id"],
                name="operation_permanent",
                condition=Q(done_at__isnull=True, error_code="permanent"),
            ),
        ]
        constraints = [
            models.CheckConstraint(
                name="operation_error_has_code", condition=Q(error="") | ~Q(error_code="")
            ),
            models.CheckConstraint(name="operation_attempts", condition=Q(attempts__gte=0)),
        ]

    def __str__(self) -> str:
        return f"{self.kind} on {self.lane}"


class Budget(models.Model):
    """Calls left for one provider account: a token bucket that all workers share."""

    key = models.CharField(max_length=80)
    tokens = models.FloatField()
    filled_at = models.DateTimeField(db_default=CLOCK)
    spent_today = models.BigIntegerField(db_default=0)
    spent_on = models.DateField(
        db_default=models.Func(
            function="CURRENT_DATE", template="%(function)s", output_field=models.DateField()
        )
    )
    throttled_today = models.BigIntegerField(
        db_default=0, help_text="Calls that the provider refused on the day of the last one."
    )
    throttled_at = models.DateTimeField(null=True, help_text="When it refused the last one.")

    class Meta:
        constraints = [models.UniqueConstraint(fields=["key"], name="budget_key")]

    def __str__(self) -> str:
        return self.key


class PendingCall(models.Model):
    """A call to an outside object that may still have an effect: it runs, or got no answer."""

    key = models.CharField(max_length=80)
    task = models.CharField(
        max_length=64, blank=True, db_default="", help_text="Its number outside, if it is known."
    )
    until = models.DateTimeField(help_text="A call without a number has ended by then.")

    class Meta:
        constraints = [models.UniqueConstraint(fields=["key"], name="pending_call_key")]

    def __str__(self) -> str:
        return self.key


class Beat(models.Model):
    """The heartbeat of a controller's loop in one process. An old `at` means a stuck or
    dead loop.
    """

    name = models.CharField(max_length=40)
    instance = models.CharField(max_length=120)
    started_at = models.DateTimeField(db_default=CLOCK)
    at = models.DateTimeField(db_default=CLOCK)
    steps = models.BigIntegerField(db_default=0)
    failures = models.IntegerField(db_default=0, help_text="Failed steps in a row.")
    error = models.TextField(blank=True, db_default="")

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["name", "instance"], name="beat_instance"),
            models.CheckConstraint(name="beat_in_order", condition=Q(at__gte=F("started_at"))),
        ]

    def __str__(self) -> str:
        return f"{self.name} on {self.instance}"
