"""Helpers that drain a member and move its deadlines."""

from datetime import timedelta
from typing import Any

from claims.lifecycle.chores import evict_overdue
from pools.models import Member
from project.kernel.models import Event
from project.kernel.validation import moment
from slots.members.chores import finish_drains, finish_leaving_members
from slots.members.drain import drain_member
from slots.members.services import Removal
from slots.models import Slot
from tests.claims.tasks.approvals.helpers import member, sql


def drain(name: str = "tf-0", **more: Any) -> Removal:
    return drain_member(
        member_id=member(name).pk, reason=more.pop("reason", "kernel patch"), **more
    )


def in_hours(hours: float) -> Any:
    return moment() + timedelta(hours=hours)


def pass_deadline(name: str = "tf-0") -> None:
    """The deadline has passed; the finalizer has not run yet."""
    sql(
        "UPDATE pools_member SET drain_until = now() - interval '1 s' "
        "WHERE name = %s AND state <> 'gone'",
        name,
    )


def finalize() -> None:
    evict_overdue()
    finish_drains()
    finish_leaving_members()


def slots_of(name: str = "tf-0") -> list[str]:
    return list(
        Slot.objects.filter(member__name=name)
        .order_by("number", "lane")
        .values_list("state", flat=True)
    )


def draining_is_over(name: str = "tf-0") -> None:
    """What drains there has had as long as it may."""
    sql(
        "UPDATE slots_slot SET drain_until = now() - interval '1 s' "
        "FROM pools_member m WHERE m.id = member_id AND m.name = %s",
        name,
    )


def find(name: str = "tf-0") -> Member:
    return Member.objects.filter(name=name).order_by("-id")[0]


def event(verb: str) -> Event:
    return Event.objects.filter(verb=verb).latest("id")
