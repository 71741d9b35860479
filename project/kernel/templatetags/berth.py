"""Template tags for times, numbers, states and disabled buttons."""

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any

from django import template
from django.utils import timezone
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString, mark_safe

from project.kernel.live.regions import open_region
from project.kernel.ui import formatting

register = template.Library()

for function in (
    formatting.number, formatting.percent, formatting.duration, formatting.brief,
    formatting.exact, formatting.iso, formatting.plural, formatting.wait,
):  # fmt: skip
    register.filter(function)

FORMATS = ("clock", "hour", "day", "moment", "ago", "for", "left", "date", "brief", "brief-left")


@register.simple_tag
def when(moment: datetime | None, form: str = "clock", now: datetime | None = None) -> SafeString:
    """A <time> element. The script shows it in the browser's time zone and keeps it current; the
    title is the exact time in UTC.
    """
    if form not in FORMATS:
        raise template.TemplateSyntaxError(f"when: unknown form {form}")
    if moment is None:
        return mark_safe('<span class="mut">–</span>')
    text = format_utc(moment, form, now or timezone.now())
    return format_html(
        '<time datetime="{}" title="{}" data-f="{}">{}</time>',
        formatting.iso(moment),
        formatting.exact(moment),
        form,
        text,
    )


def format_utc(moment: datetime, form: str, now: datetime) -> str:
    """The text of the moment in UTC, for a browser without scripts."""
    age = (now - moment).total_seconds()
    match form:
        case "ago":
            return f"{formatting.coarse(age)} ago" if age >= 1 else "now"
        case "brief" | "brief-left":
            return formatting.brief(age if form == "brief" else -age)
        case "for":
            return formatting.duration(age)
        case "left":
            return formatting.duration(-age)
        case "date":
            return f"{moment:%-d %b %Y}"
        case "hour":
            return f"{moment:%H:%M}" if moment.date() == now.date() else f"{moment:%a %H:%M}"
        case "moment":
            return f"{moment:%-d %b %Y, %H:%M:%S}"
        case "day" if moment.date() != now.date():
            return f"{moment:%a %H:%M:%S}" if abs(age) < 6 * 86400 else f"{moment:%-d %b, %H:%M}"
        case _:
            return f"{moment:%H:%M:%S}"


@register.simple_tag(takes_context=True)
def region(
    context: template.Context, name: str, argument: str | int = "", tag: str = "div"
) -> SafeString:
    """A live part of the page; empty if the reader may not see it."""
    opened = open_region(context["identity"], f"{name}:{argument}" if argument != "" else name)
    if opened is None or opened.render is None:
        return mark_safe("")
    html = mark_safe(opened.render())  # noqa: S308  from a template, which escapes
    return format_html(
        '<{} data-region="{}" data-at="{}">{}</{}>', tag, opened.name, context["at"], html, tag
    )


@register.simple_tag
def st(name: str, word: str = "") -> SafeString:
    """A state with its glyph and word."""
    return format_html('<span class="st {}">{}</span>', name, word or name)


@register.simple_tag
def off(why: str, name: str = "") -> SafeString:
    """Attributes of a disabled button with the reason `why`; empty for an enabled button."""
    if not why:
        return mark_safe("")
    return format_html(
        ' aria-disabled="true" data-why="{}"{}',
        why,
        format_html(' aria-label="{}: {}"', name, why) if name else "",
    )


@register.filter
def counted(parts: Iterable[Any]) -> str:
    """The parts of a bar as text: "3 held, 2 open"."""
    return ", ".join(f"{part.count} {part.word}" for part in parts)


@register.simple_tag
def linked_parts(parts: Iterable[Any]) -> SafeString:
    """The sentence of an event: each part is a text or a link, plain or bold."""

    def html(part: Any) -> SafeString:
        text = format_html("<b>{}</b>" if part.is_strong else "{}", part.text)
        return format_html('<a href="{}">{}</a>', part.href, text) if part.href else text

    return format_html_join("", "{}", ((html(part),) for part in parts))


@register.filter
def get(mapping: Mapping[object, object] | None, key: object) -> object:
    return mapping.get(key) if mapping else None
