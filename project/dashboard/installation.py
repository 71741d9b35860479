"""The state of this installation: processes, and problems that need attention."""

import time
from collections.abc import Collection
from dataclasses import dataclass

from django.conf import settings
from django.db import connection
from django.db.models import Q

from pools.lifecycle.selectors import LIVE
from pools.models import Member, Pool
from pools.providers.base import explain_not_allowed, list_allowed
from project.kernel.doctor.health import check_expected_loops
from project.kernel.models import Operation
from project.kernel.ui import formatting
from slots.members.drain import list_stuck
from slots.members.members_sql import OldTokensRow, StuckDrainsRow
from slots.members.token_rotation import list_old_tokens


@dataclass(frozen=True, slots=True)
class InstallationProblem:
    lead: str
    text: str


@dataclass(frozen=True, slots=True)
class StatusLine:
    name: str
    css: str
    text: str
    more: str = ""


def list_problems(visible: Collection[int] | None = None) -> list[InstallationProblem]:
    """Problems of controllers and pools that need attention, the worst first. `visible`: ids of the
    pools to include; None: all pools.
    """
    of_pool = Q() if visible is None else Q(pool_id__in=visible)
    pools = (
        Pool.objects.filter(LIVE) if visible is None else Pool.objects.filter(LIVE, pk__in=visible)
    )
    found = [
        InstallationProblem(f"{loop.name}:", loop.detail)
        for loop in check_expected_loops()
        if not loop.is_well
    ]
    failing = list(
        pools.filter(provider_error_since__isnull=False).order_by("provider_error_since")[:50]
    )
    found += [
        InstallationProblem(
            f"{pool.name}:", f"its provider fails, Berth retries: {pool.provider_error[:200]}"
        )
        for pool in failing
    ]
    operations = Operation.objects.filter(of_pool, done_at__isnull=True).exclude(error_code="")
    # Operations of a pool whose provider fails have the same cause.
    operations = operations.exclude(pool_id__in=[pool.pk for pool in failing])
    for operation in operations.order_by("due_at")[:50]:
        again = (
            "an operator has to resolve it"
            if operation.error_code == "permanent"
            else f"tried {formatting.plural(operation.attempts, 'time')}, Berth retries"
        )
        found.append(
            InstallationProblem(
                f"{operation.kind} on {operation.lane}:", f"{operation.error[:120]}; {again}"
            )
        )
    for member in (
        Member.objects.select_related("pool")
        .filter(LIVE, of_pool, gave_up_at__isnull=False)
        .order_by("gave_up_at")[:50]
    ):
        tries = formatting.plural(member.restarts, "start")
        found.append(
            InstallationProblem(
                f"{member.name} in {member.pool.name}:",
                f"{tries} failed; automatic restarts stopped",
            )
        )
    for pool in pools.filter(roll_stopped_at__isnull=False).order_by("roll_stopped_at")[:50]:
        found.append(
            InstallationProblem(
                f"roll of {pool.name}:",
                f"stopped, {pool.roll_stop_reason}; the other members are unchanged",
            )
        )
    for pool in pools.exclude(provider__in=list_allowed()).order_by("name")[:50]:
        if (fault := explain_not_allowed(pool.provider)) is not None:
            found.append(
                InstallationProblem(
                    f"{pool.name}:", f"it takes no new members. {fault.message} {fault.way_out}"
                )
            )
    hanging = [stuck for stuck in list_stuck() if visible is None or stuck.pool_id in visible]
    found += [
        InstallationProblem(f"{stuck.name} in {stuck.pool}:", describe_stuck_drain(stuck))
        for stuck in hanging
    ]
    tokens = [old for old in list_old_tokens() if visible is None or old.pool_id in visible]
    return found + [
        InstallationProblem(f"{old.name} in {old.pool}:", describe_old_token(old)) for old in tokens
    ]


def describe_stuck_drain(stuck: StuckDrainsRow) -> str:
    what = [formatting.plural(stuck.held, "slot") + " held"] * bool(stuck.held)
    what += [formatting.plural(stuck.draining, "slot") + " still being cleaned"] * bool(
        stuck.draining
    )
    return (
        f"past its drain deadline since {formatting.coarse(stuck.over_for)}, "
        f"{formatting.sentence(what) or 'about to be removed'}: “{stuck.note}”"
    )


def describe_old_token(old: OldTokensRow) -> str:
    if old.is_untaken:
        return (
            f"its agent does not use the token that was created {formatting.coarse(old.age)} ago; "
            "the previous token is still valid"
        )
    if old.is_ours:
        return (
            f"its token is {formatting.coarse(old.age)} old and was not rotated: check that watch "
            "and a worker run"
        )
    when = (
        f"is due in {formatting.coarse(old.remaining)}"
        if old.remaining > 0
        else f"was due {formatting.coarse(-old.remaining)} ago"
    )
    return (
        f"a new token for its agent {when}: create the token on the member’s page and put it where "
        "the agent reads it"
    )


def installation() -> list[StatusLine]:
    began = time.monotonic()
    with connection.cursor() as cursor:
        cursor.execute("SHOW server_version")
        version = str(cursor.fetchone()[0]).split(" ")[0]
    took = (time.monotonic() - began) * 1000
    embedded = ", embedded" if _is_embedded() else ""
    found = [
        StatusLine("Database", "ready", f"PostgreSQL {version}{embedded}, {max(1, round(took))} ms")
    ]
    health = check_expected_loops()
    running = [loop.name for loop in health if loop.is_well and not loop.name.startswith("relay")]
    found.append(
        StatusLine(
            "Controllers", "ready" if running else "offline", ", ".join(running) or "none runs"
        )
    )
    found += [
        StatusLine(loop.name, "unhealthy", loop.detail, "see its log")
        for loop in health
        if not loop.is_well
    ]
    due = Operation.objects.filter(done_at__isnull=True).count()
    found.append(StatusLine("Operations", "ready", "none open" if not due else f"{due} open"))
    return found


def _is_embedded() -> bool:
    return (
        connection.settings_dict.get("HOST") in ("127.0.0.1", "localhost")
        and (settings.BERTH_HOME / "postgres").is_dir()
    )
