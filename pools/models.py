"""Pools, members, grants, tokens and the records of the scaler. Services in `slots` and `claims`
change the rows of pools and members.
"""

from django.conf import settings
from django.contrib.postgres.constraints import ExclusionConstraint
from django.contrib.postgres.fields import ArrayField, IntegerRangeField, RangeOperators
from django.db import models
from django.db.models import F, Q
from django.db.models.functions import Now

from pools.config.placement import DEFAULT_PLACEMENT, LONGEST_NAME
from pools.states import MEMBER, POOL
from project.kernel.db.fields import long_text, optional_moment, short_text

NOT_GONE = ~Q(state="gone")


class Pool(models.Model):
    name = models.CharField(max_length=63)
    provider = models.CharField(max_length=32, default="static", db_default="static")
    state = POOL.field()
    # Celery queue of the provider; empty: the provider performs no operations.
    queue = short_text(32)
    # Most restricted first; the layout holds what each lane accepts.
    lanes = ArrayField(models.CharField(max_length=16), default=list)
    # Determines slot.rank.
    placement = models.CharField(
        max_length=LONGEST_NAME, default=DEFAULT_PLACEMENT, db_default=DEFAULT_PLACEMENT
    )
    spec = models.JSONField(default=dict)  # validated whole, see pools.config.spec
    min_members = models.IntegerField(default=0, db_default=0)
    max_members = models.IntegerField(default=10, db_default=10)
    # Rises with every change of configuration: the ETag.
    revision = models.IntegerField(default=1, db_default=1)
    scale_requested_at = optional_moment()
    absorb_until = optional_moment()
    scaled_up_at = optional_moment()
    scaled_down_at = optional_moment()
    # Last full look at the provider; scale-in needs a fresh one.
    observed_at = optional_moment()
    pin_count = models.IntegerField(null=True, blank=True)
    pin_until = optional_moment()
    pin_reason = long_text()
    # A freeze window is open: no slot is handed out, idle members are removed.
    frozen_until = optional_moment()
    freeze_reason = long_text()
    # The freeze is lifted until the end of its window.
    unfrozen_until = optional_moment()
    # The scaler pauses; slots are still handed out.
    scaling_paused_until = optional_moment()
    scaling_pause_reason = long_text()
    paused_until = optional_moment()
    pause_reason = long_text()
    # Since when slots are opened or closed batch by batch; null: all slots are finished.
    unaligned_at = optional_moment()
    # Where the members are, as the provider names it.
    place = short_text(255)
    # Digest of the configuration from which members are created now.
    member_digest = short_text(64)
    # The surplus member that a roll created to replace an outdated member.
    surge_id = models.BigIntegerField(null=True, blank=True)
    # The digest to which an operator ordered a roll.
    roll_ordered = short_text(64)
    roll_paused_until = optional_moment()
    roll_pause_reason = long_text()
    # A new member did not become ready; an operator must continue the roll.
    roll_stopped_at = optional_moment()
    roll_stop_reason = long_text()
    # The error of the provider's last look; the next successful look clears it.
    provider_error = long_text()
    provider_error_code = short_text(16)
    provider_error_since = optional_moment()
    # Names of the objects without a member that the last look found.
    strays = models.JSONField(default=list, db_default=models.Value([], models.JSONField()))
    # Strays that are to be deleted (slots.sync.stray_orders).
    stray_orders = models.JSONField(default=list, db_default=models.Value([], models.JSONField()))
    created_at = models.DateTimeField(db_default=Now())
    changed_at = models.DateTimeField(db_default=Now())

    class Meta:
        constraints = [
            POOL.check(),
            models.UniqueConstraint(fields=["name"], condition=NOT_GONE, name="pool_name"),
            models.CheckConstraint(
                name="pool_limits",
                condition=Q(min_members__gte=0, min_members__lte=F("max_members")),
            ),
        ]

    def __str__(self) -> str:
        return self.name


class Member(models.Model):
    pool = models.ForeignKey(Pool, on_delete=models.PROTECT, related_name="members")
    name = models.CharField(max_length=63)  # survives re-creation
    # Rises with every re-creation: older tokens and heartbeats are rejected.
    incarnation = models.IntegerField(default=1, db_default=1)
    position = models.IntegerField(default=0, db_default=0)
    # ARN, pod UID.
    external_id = short_text(255)
    # Ports that this member may use of a shared load balancer.
    ports = IntegerRangeField(null=True, blank=True)
    state = MEMBER.field()
    # Berth created the member and may delete it.
    is_owned = models.BooleanField(default=True, db_default=True)
    is_cordoned = models.BooleanField(default=False, db_default=False)
    # Removed once empty, at drain_until at the latest.
    is_leaving = models.BooleanField(default=False, db_default=False)
    note = long_text()  # why it is cordoned or leaves
    # The cordon that an operator ordered, apart from the cordon of a drain: the end of a drain
    # restores it.
    cordon_by = short_text(80)
    cordon_note = long_text()
    # Digest of the configuration from which the member was created; empty: unknown.
    spec_digest = short_text(64)
    # Configuration declared for this member only.
    spec = models.JSONField(default=dict, db_default=models.Value({}, models.JSONField()))
    labels = models.JSONField(default=dict, db_default=models.Value({}, models.JSONField()))
    deletion_cost = models.IntegerField(default=0, db_default=0)
    # Deadline of a drain: remaining claims are evicted.
    drain_until = optional_moment()
    drain_since = optional_moment()
    drain_by = short_text(80)
    due_at = optional_moment()  # when the finalizer looks next
    # Silent for too long, or gone outside: its claims are lost. The member may come back.
    lost_at = optional_moment()
    state_at = models.DateTimeField(db_default=Now())  # time of the last change of state
    # When the provider saw that the member does not run; null: it runs, or unknown.
    down_at = optional_moment()
    # The provider's text on what the member waits for, or on a fault.
    outside = short_text(320)
    # Host names and IPs under which its ports are reached.
    addresses = models.JSONField(default=list, db_default=models.Value([], models.JSONField()))
    # Lane and number of the foreign listeners that the provider sees on it.
    foreign_listeners = models.JSONField(
        default=list, db_default=models.Value([], models.JSONField())
    )
    # The outside ends this incarnation: no new claims.
    is_ending = models.BooleanField(default=False, db_default=False)
    # Ended on purpose: its restart does not count.
    is_down_planned = models.BooleanField(default=False, db_default=False)
    # Restarts in a row; reset after a while in good health.
    restarts = models.IntegerField(default=0, db_default=0)
    # No further restarts until an operator orders one.
    gave_up_at = optional_moment()
    token_hash = short_text(64)
    previous_token_hash = short_text(64)
    token_since = optional_moment()
    # First use of the present token; null: the agent has not used it yet.
    token_used_at = optional_moment()
    # An admin ordered a rotation before the token's age requires one.
    token_due_at = optional_moment()
    # The previous token ends with the first use of the new one, not an hour later.
    is_previous_ending = models.BooleanField(default=False, db_default=False)
    created_at = models.DateTimeField(db_default=Now())
    changed_at = models.DateTimeField(db_default=Now())

    class Meta:
        constraints = [
            MEMBER.check(),
            models.UniqueConstraint(
                fields=["pool", "name"], condition=NOT_GONE, name="member_name"
            ),
            # Two pools on one load balancer never share a port.
            ExclusionConstraint(
                name="member_ports_apart",
                expressions=[
                    ("external_id", RangeOperators.EQUAL),
                    ("ports", RangeOperators.OVERLAPS),
                ],
                condition=Q(ports__isnull=False) & ~Q(external_id="") & NOT_GONE,
            ),
        ]
        indexes = [
            models.Index(fields=["due_at"], condition=Q(due_at__isnull=False), name="member_due"),
            models.Index(
                fields=["id"], condition=Q(is_leaving=True) & NOT_GONE, name="member_leaves"
            ),
            models.Index(
                fields=["drain_until"],
                condition=Q(drain_until__isnull=False) & NOT_GONE,
                name="member_drains",
            ),
            models.Index(
                fields=["id"], condition=Q(lost_at__isnull=False) & NOT_GONE, name="member_lost"
            ),
            models.Index(
                fields=["id"],
                condition=Q(state__in=("creating", "deleting")),
                name="member_on_its_way",
            ),
            models.Index(fields=["id"], condition=Q(state="offline"), name="member_offline"),
            models.Index(
                fields=["id"], condition=Q(restarts__gt=0) & NOT_GONE, name="member_restarted"
            ),
        ]

    def __str__(self) -> str:
        return self.name

    @property
    def is_outdated(self) -> bool:
        """True if the member was created from another configuration than the pool has now. False
        if its configuration is unknown.
        """
        now = self.pool.member_digest
        return bool(self.spec_digest and now and self.spec_digest != now)


class Installation(models.Model):
    """One row with the name that marks objects of this installation in outside systems. A dump
    contains the row, so that a restored database recognises its objects.
    """

    id = models.IntegerField(primary_key=True, default=1)
    name = models.CharField(max_length=63)

    class Meta:
        constraints = [models.CheckConstraint(name="installation_once", condition=Q(id=1))]


class Heartbeat(models.Model):
    """The last heartbeat of a member. A narrow row, because each member writes it every few
    seconds.
    """

    member = models.OneToOneField(Member, on_delete=models.CASCADE, primary_key=True)
    incarnation = models.IntegerField()
    at = models.DateTimeField(db_default=Now())
    load = models.JSONField(null=True, blank=True)


class Decision(models.Model):
    """A decision of the scaler with its reason. Equal decisions in a row share one row."""

    pool = models.ForeignKey(Pool, on_delete=models.CASCADE, related_name="decisions")
    at = models.DateTimeField(db_default=Now())
    last_at = models.DateTimeField(db_default=Now())
    seen_again = models.IntegerField(default=0, db_default=0)
    inputs = models.JSONField()
    delta = models.IntegerField()
    reason = models.TextField()
    chosen = models.JSONField(default=list)
    spared = models.JSONField(default=list)

    class Meta:
        indexes = [models.Index(fields=["pool", "-last_at"], name="decision_latest")]


class Sample(models.Model):
    pool = models.ForeignKey(Pool, on_delete=models.CASCADE, related_name="samples", db_index=False)
    at = models.DateTimeField()
    # By minute for 7 days, by hour for 90.
    is_hourly = models.BooleanField(default=False, db_default=False)
    members = models.IntegerField()
    slots = models.IntegerField()
    held = models.IntegerField()
    reserved = models.IntegerField()
    waiting = models.IntegerField()

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["pool", "at", "is_hourly"], name="sample_once")
        ]


class Secret(models.Model):
    pool = models.ForeignKey(Pool, on_delete=models.CASCADE, related_name="secrets")
    name = models.CharField(max_length=63)
    ciphertext = models.BinaryField()
    key_id = models.CharField(max_length=32)
    changed_at = models.DateTimeField(db_default=Now())

    class Meta:
        constraints = [models.UniqueConstraint(fields=["pool", "name"], name="secret_name")]


class Grant(models.Model):
    """A role of a user or a group, in one pool or (null) in all pools. `pools.access.permissions`
    declares the roles.
    """

    user = models.ForeignKey(
        settings.AUTH_USER_MODEL,
        null=True,
        blank=True,
        on_delete=models.CASCADE,
        related_name="grants",
    )
    group = models.ForeignKey(
        "auth.Group", null=True, blank=True, on_delete=models.CASCADE, related_name="grants"
    )
    pool = models.ForeignKey(
        Pool, null=True, blank=True, on_delete=models.CASCADE, related_name="grants"
    )
    role = models.CharField(max_length=16)
    created_at = models.DateTimeField(db_default=Now())

    class Meta:
        constraints = [
            models.CheckConstraint(
                name="grant_one_subject", condition=Q(user__isnull=False) ^ Q(group__isnull=False)
            ),
            models.UniqueConstraint(
                fields=["user", "group", "pool", "role"], nulls_distinct=False, name="grant_once"
            ),
        ]


class Token(models.Model):
    """A token of a program. Only its hash is stored; each use intersects the scopes with the
    present roles of the user.
    """

    user = models.ForeignKey(
        settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="tokens"
    )
    name = models.CharField(max_length=80)
    prefix = models.CharField(max_length=16)
    hash = models.CharField(max_length=64)
    # {"roles": [...], "pools": [...] or null}; see pools.access.permissions.
    scopes = models.JSONField(default=dict)
    created_at = models.DateTimeField(db_default=Now())
    expires_at = optional_moment()
    last_used_at = optional_moment()
    revoked_at = optional_moment()

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["hash"], name="token_hash"),
            models.UniqueConstraint(
                fields=["user", "name"], condition=Q(revoked_at__isnull=True), name="token_name"
            ),
        ]

    def __str__(self) -> str:
        return self.name
