"""Claims and the rows around them. A claim does not name its slots: the slots name the claim."""

from django.contrib.postgres.fields import ArrayField
from django.contrib.postgres.indexes import GinIndex
from django.db import models
from django.db.models import Q
from django.db.models.functions import Now

from claims.constraints import CLAIM_CONSTRAINT
from claims.states import CLAIM, CLAIM_SET, SERIAL_LIVE
from pools.models import Pool
from project.kernel.db.fields import long_text, optional_moment, short_text

EMPTY = models.Value({}, models.JSONField())


class Shape(models.Model):
    """A distinct request, which is one queue: the wait reason of its first claim is true of all."""

    digest = models.BinaryField()
    pools = ArrayField(models.CharField(max_length=63))  # names: a pool may not exist yet
    kind = models.CharField(max_length=32)
    # The lanes of its pools that serve the kind; lanes that accept few kinds come first. Empty:
    # none of the pools exists yet.
    lanes = ArrayField(models.CharField(max_length=16), default=list)
    size = models.SmallIntegerField(default=1, db_default=1)
    # Contiguous, same_member, same_number, selector.
    terms = models.JSONField(default=dict, db_default=EMPTY)
    # One slot, one pool, no terms: bound in batches.
    is_simple = models.BooleanField(default=True, db_default=True)
    # Stored once for the queue, not for each of 5,000 claims.
    wait_reason = models.JSONField(null=True, blank=True)
    tried_at = optional_moment()

    class Meta:
        constraints = [models.UniqueConstraint(fields=["digest"], name="shape_digest")]
        indexes = [
            GinIndex(fields=["pools"], name="shape_pools"),
            GinIndex(models.F("pools__1_16"), name="shape_pools_behind"),  # all but the first
        ]


class Workspace(models.Model):
    # Null: the workspace of an installation before 0.2 in which no claim named its pool.
    pool = models.ForeignKey(
        Pool,
        null=True,
        blank=True,
        on_delete=models.PROTECT,
        related_name="workspaces",
        db_index=False,
    )
    name = models.CharField(max_length=120)
    locked_at = optional_moment()
    locked_by = short_text(80)
    lock_reason = long_text()
    # The claim with the lost apply that locked the workspace, until a user records its outcome.
    lost_claim_id = models.BigIntegerField(null=True, blank=True)

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=["pool", "name"], nulls_distinct=False, name="workspace_name"
            )
        ]

    def __str__(self) -> str:
        return self.name


class WorkspaceShare(models.Model):
    """Another pool that uses a workspace, once an operator of both pools has allowed it."""

    workspace = models.ForeignKey(
        Workspace, on_delete=models.CASCADE, related_name="shares", db_index=False
    )
    pool = models.ForeignKey(Pool, on_delete=models.PROTECT, related_name="shared_workspaces")
    # Null: the pool used it before workspaces belonged to pools, and an operator has to decide.
    # Until then it takes no new claim.
    allowed_at = optional_moment()
    allowed_by = short_text(80)
    reason = long_text()

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["workspace", "pool"], name="workspace_share_once")
        ]


class ClaimSet(models.Model):
    name = models.CharField(max_length=120)
    shape = models.ForeignKey(Shape, on_delete=models.PROTECT)
    replicas = models.IntegerField()
    max_surge = models.IntegerField(default=1, db_default=1)
    template = models.JSONField(default=dict, db_default=EMPTY)
    state = CLAIM_SET.field()

    class Meta:
        constraints = [
            CLAIM_SET.check(),
            models.UniqueConstraint(fields=["name"], name="claim_set_name"),
        ]

    def __str__(self) -> str:
        return self.name


class Claim(models.Model):
    shape = models.ForeignKey(
        Shape, on_delete=models.PROTECT, db_index=False, related_name="claims"
    )
    # The first of its pools, once that pool exists.
    pool = models.ForeignKey(
        Pool, null=True, blank=True, on_delete=models.PROTECT, db_index=False, related_name="claims"
    )
    # Chosen by the caller: pod:<uid>, workspace:<name>, user:<id>.
    owner = short_text(160)
    # The user of the request (`Identity.requester`), also if a token made it.
    requested_by = short_text(80)
    # Idempotency key, unique for the requester.
    key = models.CharField(max_length=120, null=True, blank=True)
    body_digest = models.BinaryField(null=True, blank=True)
    attempts = models.SmallIntegerField(default=0, db_default=0)
    notified_at = optional_moment()
    # 0: approved; else 100 - priority. Claims are ordered by rank, then id.
    rank = models.SmallIntegerField(default=100, db_default=100)
    state = CLAIM.field()
    outcome = short_text(16)
    size = models.SmallIntegerField(default=1, db_default=1)
    # Slots that later claims have taken while this claim waited.
    passed = models.SmallIntegerField(default=0, db_default=0)
    generation = models.BigIntegerField(default=0, db_default=0)
    # The generation that the last call named.
    named_generation = models.BigIntegerField(default=0, db_default=0)
    step = short_text(8)  # plan | apply
    workspace = models.ForeignKey(
        Workspace, null=True, blank=True, on_delete=models.PROTECT, db_index=False
    )
    is_serial = models.BooleanField(default=False, db_default=False)
    claim_set = models.ForeignKey(
        ClaimSet, null=True, blank=True, on_delete=models.PROTECT, db_index=False
    )
    approved_plan = models.ForeignKey(
        "Plan", null=True, blank=True, on_delete=models.PROTECT, db_index=False, related_name="+"
    )
    expires_at = optional_moment()  # deadline of the present state
    due_at = optional_moment()  # the next check of the finalizer
    bound_at = optional_moment()
    acknowledged_at = optional_moment()
    # Start of the wait for an approval, with a slot or without.
    reserved_at = optional_moment()
    # The claim is parked and gets a slot again before its approval.
    is_seeking = models.BooleanField(default=False, db_default=False)
    # `ClaimSpec`; due_in: seconds from the bind to the first check.
    spec = models.JSONField(default=dict, db_default=EMPTY)
    backend = models.JSONField(null=True, blank=True)  # the target of the slots
    created_at = models.DateTimeField(db_default=Now())
    changed_at = models.DateTimeField(db_default=Now())

    class Meta:
        constraints = [
            CLAIM_CONSTRAINT.check(),
            models.UniqueConstraint(fields=["requested_by", "key"], name="claim_key"),
            models.UniqueConstraint(
                fields=["workspace"],
                condition=Q(is_serial=True, state__in=SERIAL_LIVE),
                name="claim_serial",
            ),
        ]
        indexes = [
            models.Index(
                fields=["shape", "rank", "id"], condition=Q(state="waiting"), name="claim_line"
            ),
            models.Index(
                fields=["pool", "rank", "shape"],
                condition=Q(state="waiting", pool__isnull=False),
                name="claim_rivals",
            ),
            # Claims that have not ended. No condition on a state implies the outcome, so the
            # planner never reads this index in place of another one while it seems to be empty.
            models.Index(fields=["owner"], condition=Q(outcome=""), name="claim_owner"),
            models.Index(fields=["due_at"], condition=Q(due_at__isnull=False), name="claim_due"),
            models.Index(
                fields=["claim_set"],
                condition=Q(claim_set__isnull=False) & ~Q(state="ended"),
                name="claim_of_set",
            ),
            models.Index(
                fields=["workspace", "rank", "id"],
                condition=Q(state="blocked"),
                name="claim_blocked",
            ),
            models.Index(fields=["pool", "id"], name="claim_of_pool"),
            models.Index(
                fields=["workspace", "id"],
                condition=Q(workspace__isnull=False) & ~Q(state="ended"),
                name="claim_of_workspace",
            ),
            models.Index(
                fields=["workspace", "id"],
                condition=Q(workspace__isnull=False),
                name="claim_history",
            ),
            models.Index(
                fields=["expires_at", "id"],
                condition=Q(state__in=("reserved", "parked")),
                name="claim_pending",
            ),
            models.Index(fields=["rank", "id"], condition=Q(is_seeking=True), name="claim_seeks"),
            models.Index(
                fields=["rank", "id"],
                condition=Q(state="waiting", step="apply"),
                name="claim_applies",
            ),
        ]

    def __str__(self) -> str:
        return str(self.pk)


class ClaimPart(models.Model):
    """One part of a claim, such as a port: its kind, its pools and its slots. The queue of the
    claim knows the same kinds and pools; a row adds the options of the part.
    """

    claim = models.ForeignKey(Claim, on_delete=models.CASCADE, related_name="parts", db_index=False)
    index = models.SmallIntegerField()  # from 0, in the order of the request
    kind = models.CharField(max_length=32)
    pools = ArrayField(models.CharField(max_length=63))
    # Slots in all its pools, and the ordinal of the first. Final once the pools exist.
    count = models.SmallIntegerField()
    first = models.SmallIntegerField()
    # Of a port: `port`, `protocol`, `same_number` and `certificate`, as requested.
    options = models.JSONField(default=dict, db_default=EMPTY)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["claim", "index"], name="claim_part_once")]


class BackendTarget(models.Model):
    """The claim to whose slots a target of a pool belongs: `tcp 10.0.0.1:80`. A row of a claim that
    has ended, or has another backend by now, is free for the next claim.
    """

    pool = models.ForeignKey(Pool, on_delete=models.CASCADE, related_name="+", db_index=False)
    target = models.CharField(max_length=80)
    claim = models.ForeignKey(Claim, on_delete=models.CASCADE, related_name="+")

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["pool", "target"], name="backend_target_once")
        ]


class BackendConflict(models.Model):
    """A target of a claim's backend that belongs to another live claim of the pool. The slots of
    the claim have no target until the other claim has ended or has another backend.
    """

    claim = models.ForeignKey(Claim, on_delete=models.CASCADE, related_name="+", db_index=False)
    pool = models.ForeignKey(Pool, on_delete=models.CASCADE, related_name="+", db_index=False)
    target = models.CharField(max_length=80)

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=["claim", "pool", "target"], name="backend_conflict_once"
            )
        ]


class Lease(models.Model):
    """The last heartbeat of a holder. A narrow row: a heartbeat never updates the claim."""

    claim = models.OneToOneField(Claim, on_delete=models.CASCADE, primary_key=True)
    generation = models.BigIntegerField()
    at = models.DateTimeField(db_default=Now())


class Source(models.Model):
    """The source files of a task as one archive, uploaded or sent with the claim. Equal archives
    are stored once.
    """

    digest = models.BinaryField()  # sha256 of the archive
    file = models.FileField(max_length=255)
    size = models.BigIntegerField()
    files = models.IntegerField()
    made_by = models.CharField(max_length=80)
    # All uploaders of this archive.
    users = models.JSONField(default=list, db_default=models.Value([], models.JSONField()))
    made_at = models.DateTimeField(db_default=Now())
    used_at = models.DateTimeField(db_default=Now())  # unused archives are swept

    class Meta:
        constraints = [models.UniqueConstraint(fields=["digest"], name="source_digest")]
        # For the quota.
        indexes = [models.Index(fields=["made_by"], include=["size"], name="source_made_by")]


class Task(models.Model):
    """The work of an agent for a claim. A table of its own, because a bind never reads it."""

    claim = models.OneToOneField(
        Claim, on_delete=models.CASCADE, primary_key=True, related_name="work"
    )
    executor = models.CharField(max_length=16)  # terraform | command
    # Commands, names of secrets, limits; never a secret's value.
    body = models.JSONField(default=dict, db_default=EMPTY)
    # Variables and environment (`claims.tasks.task_body`).
    sealed = models.BinaryField(null=True, blank=True)
    source = models.ForeignKey(
        Source, null=True, blank=True, on_delete=models.PROTECT, related_name="tasks"
    )


class Run(models.Model):
    """One generation of a claim on an agent. A row says that this generation may have run, and no
    generation runs twice.
    """

    pk = models.CompositePrimaryKey("claim_id", "generation")
    claim_id = models.BigIntegerField()
    generation = models.BigIntegerField()
    step = models.CharField(max_length=8)  # plan | apply
    member_id = models.BigIntegerField()
    member = models.CharField(max_length=63)
    # Lane and number of the slot.
    place = short_text(40)
    # The start of the agent that runs the task.
    boot = short_text(40)
    started_at = models.DateTimeField(db_default=Now())
    ended_at = optional_moment()
    # As the agent has reported it, or lost.
    outcome = short_text(16)
    # The reason as a code.
    code = short_text(40)
    reason = long_text()
    exit_code = models.IntegerField(null=True, blank=True)
    # Binary, version, platform, lock file, source, commit.
    facts = models.JSONField(default=dict, db_default=EMPTY)
    log_next = models.IntegerField(default=0, db_default=0)  # the next chunk of the log
    log_bytes = models.BigIntegerField(default=0, db_default=0)
    log_lines = models.IntegerField(default=0, db_default=0)
    # Bytes between its head and its tail that were not stored.
    log_left_out = models.BigIntegerField(default=0, db_default=0)

    class Meta:
        indexes = [
            models.Index(
                fields=["member_id"], condition=Q(ended_at__isnull=True), name="run_of_member"
            )
        ]


class Plan(models.Model):
    claim = models.ForeignKey(Claim, on_delete=models.CASCADE, related_name="plans")
    generation = models.BigIntegerField()
    # sha256 of the saved plan, or of source and output without a saved plan.
    digest = models.BinaryField()
    summary = models.JSONField(default=dict, db_default=EMPTY)  # add, change, destroy, replace
    # Versions and platform of the plan. Another member applies the plan only if they are equal.
    facts = models.JSONField(default=dict, db_default=EMPTY)
    member_id = models.BigIntegerField(null=True, blank=True)  # the member that has planned
    # The saved plan, sealed.
    file = models.FileField(max_length=255, blank=True, default="", db_default="")
    # The plan as redacted JSON, sealed.
    json_file = models.FileField(max_length=255, blank=True, default="", db_default="")
    # The parts of the JSON that pages show, sealed.
    outline_file = models.FileField(max_length=255, blank=True, default="", db_default="")
    size = models.BigIntegerField(default=0, db_default=0)
    is_stale = models.BooleanField(default=False, db_default=False)
    # How the list of changes contradicts the counts of the agent. Such a plan cannot be approved.
    mismatch = long_text()
    made_at = models.DateTimeField(db_default=Now())

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=["claim"], condition=Q(is_stale=False), name="plan_current"
            )
        ]


class RescuedState(models.Model):
    """A Terraform state that the backend of an apply did not store. The claim may be deleted before
    the state.
    """

    claim_id = models.BigIntegerField()
    generation = models.BigIntegerField()
    # The approvers of this pool may download the state.
    pool_id = models.BigIntegerField(null=True, blank=True)
    # No constraint: its check would lock the workspace outside of the order of locks.
    workspace = models.ForeignKey(
        Workspace, null=True, blank=True, on_delete=models.DO_NOTHING, db_constraint=False
    )
    member_id = models.BigIntegerField()
    member = models.CharField(max_length=63)
    size = models.BigIntegerField(default=0, db_default=0)
    digest = models.BinaryField(null=True, blank=True)  # sha256 of the state
    # Sealed; empty: the server does not have the state.
    file = models.FileField(max_length=255, blank=True, default="", db_default="")
    noted_at = models.DateTimeField(db_default=Now())
    kept_at = optional_moment()
    settled_at = optional_moment()  # discarded: its file is deleted
    settled_by = short_text(80)
    reason = long_text()

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["claim_id", "generation"], name="rescued_state_once")
        ]
        indexes = [
            models.Index(
                fields=["settled_at"],
                condition=Q(settled_at__isnull=False),
                name="rescued_state_settled",
            ),
            models.Index(
                fields=["claim_id"], condition=Q(settled_at__isnull=True), name="rescued_state_open"
            ),
        ]

    def __str__(self) -> str:
        return f"state of claim {self.claim_id}"


class Approval(models.Model):
    plan = models.ForeignKey(
        Plan, on_delete=models.CASCADE, related_name="approvals", db_index=False
    )
    # Null: a user deleted before Berth stored ids.
    user_id = models.BigIntegerField(null=True)
    by_user = models.CharField(max_length=80)  # the name of the user
    is_yes = models.BooleanField()
    comment = long_text()
    via = short_text(16)
    at = models.DateTimeField(db_default=Now())

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["plan", "user_id"], name="approval_once"),
        ]


class LogChunk(models.Model):
    """A piece of a log, at most 64 kB of text, deflated and sealed."""

    pk = models.CompositePrimaryKey("claim_id", "generation", "seq")
    claim_id = models.BigIntegerField()
    generation = models.BigIntegerField()
    seq = models.IntegerField()
    data = models.BinaryField()
    first_line = models.IntegerField()  # number of its first line in the whole log, from 0
    lines = models.IntegerField()
    size = models.IntegerField()  # bytes of text
    at = models.DateTimeField(db_default=Now())


class Lift(models.Model):
    """A freeze that a user has lifted: only the window of the pool that begins at `starts_at`."""

    pool = models.ForeignKey(Pool, on_delete=models.CASCADE, related_name="lifts", db_index=False)
    starts_at = models.DateTimeField()
    ends_at = models.DateTimeField()
    by = models.CharField(max_length=80)
    reason = models.TextField()
    at = models.DateTimeField(db_default=Now())

    class Meta:
        constraints = [models.UniqueConstraint(fields=["pool", "starts_at"], name="lift_once")]
