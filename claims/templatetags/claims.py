"""Sentences about claims, for pages: the claims and moments that they name can be followed and
are told in the reader's zone.
"""

import re
from datetime import UTC, datetime, timedelta

from django import template
from django.utils import timezone
from django.utils.html import conditional_escape, format_html
from django.utils.safestring import SafeString, mark_safe

from project.kernel.templatetags.berth import when

register = template.Library()

NAMED = re.compile(
    r"\b(?P<word>[Cc]laim) (?P<claim>[0-9]{1,18})\b|\b(?P<moment>[0-9]{4}-[0-9]{2}-[0-9]{2} "
    r"[0-9]{2}:[0-9]{2}) UTC\b"
)
SOON = timedelta(days=6)


@register.filter
def linked(text: str) -> SafeString:
    """The sentence, escaped, with a link at each claim it names, and its moments as times."""
    said, end = [], 0
    for found in NAMED.finditer(text):
        said += [
            conditional_escape(text[end : found.start()]),
            _claim(found) if found["claim"] else _moment(found),
        ]
        end = found.end()
    # Each piece is escaped.
    return mark_safe("".join([*said, conditional_escape(text[end:])]))  # noqa: S308


def _claim(found: re.Match[str]) -> SafeString:
    return format_html(
        '{} <a class="why in" href="/claims/{}/">{}</a>',
        found["word"],
        found["claim"],
        found["claim"],
    )


def _moment(found: re.Match[str]) -> SafeString:
    try:
        at = datetime.strptime(found["moment"], "%Y-%m-%d %H:%M").replace(tzinfo=UTC)
    except ValueError:  # somebody's own words, of a day that no calendar has
        return conditional_escape(found[0])
    return when(at, "hour" if abs(at - timezone.now()) < SOON else "day")


@register.filter
def lowered(text: str) -> str:
    """Inside of a sentence."""
    return text[:1].lower() + text[1:]
