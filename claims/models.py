"""Claims and what belongs to them. A claim has no pointer to its slots: the slots name the claim."""

from django.contrib.postgres.fields import ArrayField
from django.contrib.postgres.indexes import GinIndex
from django.db import models
from django.db.models import Q
from django.db.models.functions import Now

from claims.states import CLAIM, CLAIM_SET, HOLDING, SERIAL_LIVE
from pools.models import Pool

EMPTY = models.Value({}, models.JSONField())


class Shape(models.Model):
    """A distinct request. Who asks the same stands in the same line, so what is true of its head is true of all."""

    digest = models.BinaryField()
    pools = ArrayField(models.CharField(max_length=63))  # names: a pool may not exist yet
    kind = models.CharField(max_length=32)
    # What the layouts of its pools make of the kind, pickiest first; empty: none of them is known yet.
    lanes = ArrayField(models.CharField(max_length=16), default=list)
    size = models.SmallIntegerField(default=1, db_default=1)
    terms = models.JSONField(default=dict, db_default=EMPTY)  # contiguous, same_member, same_number, selector
    is_simple = models.BooleanField(default=True, db_default=True)  # one slot, one pool, no terms: bound in batches
    wait_reason = models.JSONField(null=True, blank=True)  # true of the head, so of the line: one write, not 5,000
    tried_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["digest"], name="shape_digest")]
        indexes = [GinIndex(fields=["pools"], name="shape_pools")]


class Workspace(models.Model):
    name = models.CharField(max_length=120)
    locked_at = models.DateTimeField(null=True, blank=True)
    locked_by = models.CharField(max_length=80, blank=True, default="", db_default="")
    lock_reason = models.TextField(blank=True, default="", db_default="")

    class Meta:
        constraints = [models.UniqueConstraint(fields=["name"], name="workspace_name")]

    def __str__(self) -> str:
        return self.name


class ClaimSet(models.Model):
    name = models.CharField(max_length=120)
    shape = models.ForeignKey(Shape, on_delete=models.PROTECT)
    replicas = models.IntegerField()
    max_surge = models.IntegerField(default=1, db_default=1)
    template = models.JSONField(default=dict, db_default=EMPTY)
    state = CLAIM_SET.field()

    class Meta:
        constraints = [CLAIM_SET.check(), models.UniqueConstraint(fields=["name"], name="claim_set_name")]

    def __str__(self) -> str:
        return self.name


class Claim(models.Model):
    shape = models.ForeignKey(Shape, on_delete=models.PROTECT, db_index=False, related_name="claims")
    # The first of its pools, once that is there.
    pool = models.ForeignKey(Pool, null=True, blank=True, on_delete=models.PROTECT, db_index=False, related_name="claims")
    # pod:<uid>, workspace:<name>, user:<id>, what the caller says.
    owner = models.CharField(max_length=160, blank=True, default="", db_default="")
    requested_by = models.CharField(max_length=80, blank=True, default="", db_default="")  # who asked: its keys are its own
    key = models.CharField(max_length=120, null=True, blank=True)  # idempotency, unique for who asked
    body_digest = models.BinaryField(null=True, blank=True)
    attempts = models.SmallIntegerField(default=0, db_default=0)
    notified_at = models.DateTimeField(null=True, blank=True)
    rank = models.SmallIntegerField(default=100, db_default=100)  # 0: approved; else 100 - priority. Smaller goes first, then id
    state = CLAIM.field()
    outcome = models.CharField(max_length=16, blank=True, default="", db_default="")
    size = models.SmallIntegerField(default=1, db_default=1)
    generation = models.BigIntegerField(default=0, db_default=0)
    named_generation = models.BigIntegerField(default=0, db_default=0)  # the generation the last caller acted for
    step = models.CharField(max_length=8, blank=True, default="", db_default="")  # plan | apply
    workspace = models.ForeignKey(Workspace, null=True, blank=True, on_delete=models.PROTECT, db_index=False)
    is_serial = models.BooleanField(default=False, db_default=False)
    claim_set = models.ForeignKey(ClaimSet, null=True, blank=True, on_delete=models.PROTECT, db_index=False)
    approved_plan = models.ForeignKey("Plan", null=True, blank=True, on_delete=models.PROTECT, db_index=False, related_name="+")
    expires_at = models.DateTimeField(null=True, blank=True)  # deadline of the present state
    due_at = models.DateTimeField(null=True, blank=True)  # when the finalizer looks next
    bound_at = models.DateTimeField(null=True, blank=True)
    acknowledged_at = models.DateTimeField(null=True, blank=True)
    # What was asked for beside the shape; due_in: seconds from bind to the first look.
    spec = models.JSONField(default=dict, db_default=EMPTY)
    backend = models.JSONField(null=True, blank=True)  # what the slots point at; NULL: nothing
    created_at = models.DateTimeField(db_default=Now())
    changed_at = models.DateTimeField(db_default=Now())

    class Meta:
        constraints = [
            CLAIM.check(),
            models.CheckConstraint(name="claim_size", condition=Q(size__gt=0)),
            models.CheckConstraint(
                name="claim_outcome", condition=(Q(state="ended") & ~Q(outcome="")) | (~Q(state="ended") & Q(outcome=""))
            ),
            models.CheckConstraint(name="claim_deadline", condition=~Q(state__in=("reserved", "parked")) | Q(expires_at__isnull=False)),
            models.CheckConstraint(name="claim_named", condition=Q(state__in=HOLDING) | Q(named_generation=models.F("generation"))),
            models.CheckConstraint(name="claim_apply_approved", condition=~Q(step="apply") | Q(approved_plan__isnull=False)),
            models.UniqueConstraint(fields=["requested_by", "key"], name="claim_key"),
            models.UniqueConstraint(fields=["workspace"], condition=Q(is_serial=True, state__in=SERIAL_LIVE), name="claim_serial"),
        ]
        indexes = [
            models.Index(fields=["shape", "rank", "id"], condition=Q(state="waiting"), name="claim_line"),
            models.Index(fields=["owner"], condition=~Q(state="ended"), name="claim_owner"),
            models.Index(fields=["due_at"], condition=Q(due_at__isnull=False), name="claim_due"),
            models.Index(fields=["claim_set"], condition=Q(claim_set__isnull=False) & ~Q(state="ended"), name="claim_of_set"),
            models.Index(fields=["workspace", "rank", "id"], condition=Q(state="blocked"), name="claim_blocked"),
            models.Index(fields=["pool", "id"], name="claim_of_pool"),
            models.Index(fields=["workspace", "id"], condition=Q(workspace__isnull=False) & ~Q(state="ended"), name="claim_of_workspace"),
        ]

    def __str__(self) -> str:
        return str(self.pk)


class Lease(models.Model):
    """When a holder was last heard. Narrow: a beat never touches the claim or its indexes."""

    claim = models.OneToOneField(Claim, on_delete=models.CASCADE, primary_key=True)
    generation = models.BigIntegerField()
    at = models.DateTimeField(db_default=Now())


class Plan(models.Model):
    claim = models.ForeignKey(Claim, on_delete=models.CASCADE, related_name="plans")
    generation = models.BigIntegerField()
    digest = models.BinaryField()
    summary = models.JSONField(default=dict, db_default=EMPTY)
    file = models.FileField(max_length=255, blank=True, default="", db_default="")
    is_stale = models.BooleanField(default=False, db_default=False)
    made_at = models.DateTimeField(db_default=Now())

    class Meta:
        constraints = [models.UniqueConstraint(fields=["claim"], condition=Q(is_stale=False), name="plan_current")]


class Approval(models.Model):
    plan = models.ForeignKey(Plan, on_delete=models.CASCADE, related_name="approvals", db_index=False)
    by_user = models.CharField(max_length=80)
    is_yes = models.BooleanField()
    comment = models.TextField(blank=True, default="", db_default="")
    via = models.CharField(max_length=16, blank=True, default="", db_default="")
    link = models.UUIDField(null=True, blank=True)  # unique: that is what makes a link single-use
    at = models.DateTimeField(db_default=Now())

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["plan", "by_user"], name="approval_once"),
            models.UniqueConstraint(fields=["link"], name="approval_link"),
        ]


class LogChunk(models.Model):
    pk = models.CompositePrimaryKey("claim_id", "generation", "seq")
    claim_id = models.BigIntegerField()
    generation = models.BigIntegerField()
    seq = models.IntegerField()
    text = models.TextField()
