"""Sentences about claims on pages: links to the claims that they name, and times in the reader's
time zone.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from django import template
from django.utils import timezone
from django.utils.html import conditional_escape, format_html, format_html_join
from django.utils.safestring import SafeString, mark_safe

from pools.config.label_selector import describe_selector
from project.kernel.templatetags.berth import st, when
from project.kernel.ui import formatting

register = template.Library()

NAMED = re.compile(
    r"\b(?P<word>[Cc]laim) (?P<claim>[0-9]{1,18})\b|\b(?P<moment>[0-9]{4}-[0-9]{2}-[0-9]{2} "
    r"[0-9]{2}:[0-9]{2}) UTC\b"
)
SOON = timedelta(days=6)
SLOT_STATES = {
    "reserved": " reserved",
    "draining": " leaves",
}  # what is added to the link of a claim


@register.filter
def linked(text: str) -> SafeString:
    """The sentence, escaped, with links for the claims and times for the moments that it names."""
    pieces, end = [], 0
    for found in NAMED.finditer(text):
        pieces += [
            conditional_escape(text[end : found.start()]),
            _claim(found) if found["claim"] else _moment(found),
        ]
        end = found.end()
    # Each piece is escaped.
    return mark_safe("".join([*pieces, conditional_escape(text[end:])]))  # noqa: S308


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
    except ValueError:  # a date in a user's text that does not exist
        return conditional_escape(found[0])
    return when(at, "hour" if abs(at - timezone.now()) < SOON else "day")


register.filter("selector", describe_selector)


@register.filter
def lowered(text: str) -> str:
    """The text for use inside a sentence."""
    return text[:1].lower() + text[1:]


@register.simple_tag
def claim_links(ids: Sequence[int], most: int | None = None) -> SafeString:
    """Links to the first `most` claims, and how many more there are."""
    return holder_links([(id, "") for id in ids], most)


@register.simple_tag
def holder_links(claims: Sequence[tuple[int, str]], most: int | None = None) -> SafeString:
    """The same for claims with the state of their slot: a reserved or draining slot is marked."""
    link = '<a class="mono" href="/claims/{}/">{}</a>{}'
    return _listed(
        [format_html(link, id, id, SLOT_STATES.get(state, "")) for id, state in claims], most
    )


@register.simple_tag
def blocker_links(blockers: Iterable[Any]) -> SafeString:
    """Claims that keep a member from leaving, each with its state."""
    item = '<span class="nw"><a class="mono" href="/claims/{}/">{}</a> {}</span>'
    return format_html_join(
        ", ", item, ((each.claim_id, each.claim_id, st(each.css, each.word)) for each in blockers)
    )


@register.simple_tag
def pool_links(names: Iterable[str]) -> SafeString:
    return format_html_join(
        ", ", '<a class="why" href="/pools/{}/">{}</a>', ((name, name) for name in names)
    )


@register.simple_tag
def cell_title(cell: Any, owners: Mapping[int, str]) -> str:
    """Place and state of a slot, and the claim that holds it with its owner."""
    title = f"{cell.place}: {cell.word}"
    return f"{title}, {cell.claim_id} {owners.get(cell.claim_id)}" if cell.claim_id else title


@register.simple_tag
def cell_clock(cell: Any, deadlines: Mapping[int, datetime] | None) -> SafeString:
    """How long a slot is held or drains, or how long its reservation lasts; the script
    fills it in.
    """
    if cell.name == "draining" or (cell.state == "held" and cell.name != "offline"):
        return format_html('<span data-t="{}" data-f="brief"></span>', formatting.iso(cell.since))
    until = deadlines.get(cell.claim_id) if deadlines and cell.name == "reserved" else None
    return (
        format_html('<span data-t="{}" data-f="brief-left"></span>', formatting.iso(until))
        if until
        else mark_safe("")
    )


def _listed(items: list[SafeString], most: int | None) -> SafeString:
    shown = items if most is None else items[:most]
    left = len(items) - len(shown)
    return format_html(
        "{}{}",
        format_html_join(", ", "{}", ((item,) for item in shown)),
        f" and {left} more" if left else "",
    )
