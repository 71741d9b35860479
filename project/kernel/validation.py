"""Checks of fields that many calls have."""

from datetime import datetime, timedelta

from django.db import connection
from django.utils.dateparse import parse_datetime

from project.kernel.errors import wrong_field

LONGEST_REASON = 500


def require_reason(reason: str) -> str:
    text = reason.strip()
    if not text:
        raise wrong_field(
            "reason",
            "The reason is missing.",
            "Give the reason in a few words: it is recorded in the event log.",
        )
    if len(text) > LONGEST_REASON:
        raise wrong_field(
            "reason",
            f"{len(text)} characters are too many.",
            f"Use at most {LONGEST_REASON}.",
        )
    return text


def require_future(until: datetime, longest: timedelta, words: str, way_out: str) -> None:
    """`words`: the text of `longest`, like "90 days"."""
    if until.tzinfo is None:
        raise wrong_field(
            "until",
            "This time has no offset.",
            "Write 2026-03-29T14:00:00+01:00, or end it with Z.",
        )
    now = moment()
    if until <= now:
        raise wrong_field("until", "This time has passed.", "Choose a time in the future.")
    if until > now + longest:
        raise wrong_field("until", f"This is more than {words} away.", way_out)


def parse_moment(text: str) -> datetime | None:
    """A moment in ISO 8601, with or without an offset. None: the text is not a valid moment."""
    try:
        return parse_datetime(text)
    except ValueError:
        return None


def moment() -> datetime:
    """The current time of the database's clock."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT clock_timestamp()")
        found: datetime = cursor.fetchone()[0]
    return found
