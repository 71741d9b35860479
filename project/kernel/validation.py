"""What a call has to bring, said at its field where it is missing."""

from datetime import datetime, timedelta

from django.db import connection
from django.utils.dateparse import parse_datetime

from project.kernel.errors import FieldError, Invalid

LONGEST_REASON = 500


def require_reason(reason: str) -> str:
    text = reason.strip()
    if not text:
        raise Invalid(
            fields=[
                FieldError(
                    "reason",
                    "The reason is missing.",
                    "Say why in a few words: others will read it.",
                )
            ]
        )
    if len(text) > LONGEST_REASON:
        raise Invalid(
            fields=[
                FieldError(
                    "reason",
                    f"{len(text)} characters are too many.",
                    f"Use {LONGEST_REASON} at most.",
                )
            ]
        )
    return text


def require_future(until: datetime, longest: timedelta, words: str, way_out: str) -> None:
    """`words`: what `longest` is called."""
    if until.tzinfo is None:
        raise Invalid(
            fields=[
                FieldError(
                    "until",
                    "This time has no offset.",
                    "Write 2026-03-29T14:00:00+01:00, or end it with Z.",
                )
            ]
        )
    now = moment()
    if until <= now:
        raise Invalid(fields=[FieldError("until", "This time has passed.", "Choose one to come.")])
    if until > now + longest:
        raise Invalid(fields=[FieldError("until", f"This is more than {words} away.", way_out)])


def parse_moment(text: str) -> datetime | None:
    """What somebody wrote in ISO 8601, with or without an offset. None: it is no moment, or a
    date that no calendar has.
    """
    try:
        return parse_datetime(text)
    except ValueError:
        return None


def moment() -> datetime:
    """By the database's clock."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT clock_timestamp()")
        found: datetime = cursor.fetchone()[0]
    return found
