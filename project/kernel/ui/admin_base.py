"""The base of all admin classes: they read rows, and their actions call the usual services.

A table may have millions of rows, so no page counts, sorts or joins a whole table. Lists are sorted
by primary key, newest first, and end after MAX_ROWS rows with a note. Each page is one short
transaction that may scan; it fails after the usual five seconds.
"""

import json
from collections.abc import Callable, Iterable, Sequence
from functools import wraps
from typing import Any, TypeVar

from django.contrib import admin, messages
from django.contrib.admin.views.main import PAGE_VAR
from django.core.exceptions import ValidationError
from django.core.paginator import Paginator
from django.db import OperationalError, connection
from django.db.models import Model, Q, QuerySet
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.template.response import SimpleTemplateResponse
from django.urls import reverse
from django.utils.functional import cached_property
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString
from unfold.admin import ModelAdmin

from project.kernel.db.guards import reporting
from project.kernel.models import Event

A = TypeVar("A")
M = TypeVar("M", bound=Model)
T = TypeVar("T")
MAX_ROWS = 10_000  # rows of a list that the pages reach
SHOWN_EVENTS = 20


def read_once(column: Callable[[A, M], T]) -> Callable[[A, M], T]:
    """Caches a column that queries the database: pages of unfold read each field five times."""

    @wraps(column)
    def inner(self: A, obj: M) -> T:
        shown: dict[str, T] = obj.__dict__.setdefault("_shown", {})
        if column.__name__ not in shown:
            shown[column.__name__] = column(self, obj)
        return shown[column.__name__]

    return inner


class BoundedPaginator(Paginator):  # type: ignore[type-arg]  # not to be subscripted at run time
    """Counts no further than MAX_ROWS."""

    @cached_property
    def count(self) -> int:
        rows: Any = self.object_list
        return int(rows.order_by().values("pk")[:MAX_ROWS].count())


class ReadAdmin(ModelAdmin):
    """An admin that only reads. Subclasses list their actions in `does`."""

    paginator = BoundedPaginator
    show_full_result_count = False
    show_facets = admin.ShowFacets.NEVER
    list_per_page = 50
    list_max_show_all = 200
    list_fullwidth = True
    list_before_template = "admin/berth/list_note.html"  # type: ignore[assignment]
    search_fields = ("pk",)  # shows the search box; get_search_results does the search
    ordering = ("-pk",)
    sortable_by = ()
    list_filter_sheet = False
    compressed_fields = True
    does: Sequence[str] = ()  # names of methods made by admin_actions.service_action
    # Lookups of the search by name: "owner:web" uses "owner". A bare word uses the first name of
    # `bare_words` that accepts it.
    lookups: dict[str, str] = {"id": "pk"}
    bare_words: Sequence[str] = ("id",)

    def __init_subclass__(cls) -> None:
        # mypy takes the type from unfold's empty default.
        cls.actions = cls.actions_detail = tuple(cls.does)  # type: ignore[assignment]
        names = ", ".join(f"{name}:…" for name in cls.lookups)
        cls.search_help_text = f"Search by {names}; without a name: {' or '.join(cls.bare_words)}"

    # -- permissions: the site admits superusers only -----------------------------
    def has_add_permission(self, request: HttpRequest) -> bool:
        return False

    def has_change_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        return False

    # -- pages --------------------------------------------------------------------
    def changelist_view(
        self, request: HttpRequest, extra_context: dict[str, Any] | None = None
    ) -> Any:
        if request.method != "GET":  # an action; its service opens its own transaction
            return super().changelist_view(request, extra_context)
        context = {**(extra_context or {}), "most": MAX_ROWS, "estimate": self.estimate()}
        return self._read(request, lambda: super(ReadAdmin, self).changelist_view(request, context))

    def changeform_view(
        self,
        request: HttpRequest,
        object_id: str | None = None,
        form_url: str = "",
        extra_context: dict[str, Any] | None = None,
    ) -> Any:
        if request.method != "GET":  # models that can be added
            return super().changeform_view(request, object_id, form_url, extra_context)
        return self._read(
            request,
            lambda: super(ReadAdmin, self).changeform_view(
                request, object_id, form_url, extra_context
            ),
        )

    def _read(self, request: HttpRequest, view: Callable[[], HttpResponse]) -> HttpResponse:
        try:
            with reporting():
                response = view()
                if isinstance(response, SimpleTemplateResponse):
                    response.render()
                return response
        except OperationalError as error:
            if "statement timeout" not in str(error) or not request.GET:
                raise
            messages.warning(
                request,
                "The search took longer than five seconds and was cancelled. Narrow it with an id, "
                "a pool or a claim.",
            )
            return HttpResponseRedirect(request.path)

    def estimate(self) -> int:
        """The approximate number of rows from the last ANALYZE; -1 before the first ANALYZE."""
        with connection.cursor() as cursor:
            cursor.execute(
                "SELECT reltuples::bigint FROM pg_class WHERE oid = %s::regclass",
                [self.model._meta.db_table],
            )
            return int(cursor.fetchone()[0])

    # -- search -------------------------------------------------------------------
    def get_search_results(
        self, request: HttpRequest, queryset: QuerySet[Any], search_term: str
    ) -> tuple[QuerySet[Any], bool]:
        for word in search_term.split():
            name, _, value = word.partition(":")
            if value and name in self.lookups:
                found = self._look_up([name], value)
            else:
                found = self._look_up(self.bare_words, word)
            queryset = queryset.none() if found is None else queryset.filter(found)
        return queryset, False

    def _look_up(self, names: Iterable[str], value: str) -> Q | None:
        """The condition of the first name whose column accepts the value. An OR over several
        columns would use no index.
        """
        for name in names:
            lookup = self.lookups[name]
            field = self._field(lookup)
            try:
                ready = field.to_python(value)
                field.run_validators(ready)
            except ValidationError:
                continue
            return Q(**{lookup: ready})
        return None

    def _field(self, lookup: str) -> Any:
        meta: Any = self.model._meta
        field: Any = None
        for part in lookup.split("__"):
            if part == "pk":
                field = meta.pk
            elif part in {"startswith", "iexact", "contains"}:
                break
            else:
                field = meta.get_field(part)
            if field.is_relation:
                meta, field = field.related_model._meta, field.target_field
        return field

    def get_preserved_filters(self, request: HttpRequest) -> str:
        """Keeps the filters, but drops the page number after a search."""
        return (
            super().get_preserved_filters(request)
            if PAGE_VAR not in request.GET or "q" not in request.GET
            else ""
        )

    # -- columns ------------------------------------------------------------------
    @admin.display(description="last events")
    @read_once
    def last_events(self, obj: Model) -> SafeString | str:
        return events_of(obj)


def link(model: str, pk: object, text: object = None) -> SafeString | str:
    """A link to the page of a row: link("claims.claim", 88)."""
    if pk is None:
        return "-"
    return _anchor(reverse(_name(model, "change"), args=[pk]), text or pk)


def link_list(model: str, text: str, **filters: object) -> SafeString:
    """A link to a filtered list: link_list("slots.slot", "slots", member__id__exact=4)."""
    return _anchor(reverse(_name(model, "changelist"), query=filters), text)


def _anchor(href: str, text: object) -> SafeString:
    return format_html(
        '<a class="text-primary-600 dark:text-primary-500" href="{}">{}</a>', href, text
    )


def links(rows: Iterable[object]) -> SafeString | str:
    return format_html_join(" · ", "{}", ((row,) for row in rows)) or "-"


def lines(rows: Iterable[Sequence[object]]) -> SafeString | str:
    """A small table."""
    body = format_html_join(
        "",
        "<tr>{}</tr>",
        (
            (
                format_html_join(
                    "", '<td class="pr-4 py-1 align-top">{}</td>', ((cell,) for cell in row)
                ),
            )
            for row in rows
        ),
    )
    return format_html("<table>{}</table>", body) if body else "-"


def as_json(value: object) -> SafeString:
    return format_html(
        '<pre class="text-xs whitespace-pre-wrap">{}</pre>',
        json.dumps(value, indent=2, default=str, ensure_ascii=False),
    )


def as_hex(value: bytes | memoryview | None) -> str:
    return bytes(value).hex() if value is not None else "-"


def shown_column(
    show: Callable[[Any], SafeString | str], field: str
) -> Callable[[object, Model], SafeString | str]:
    """A column that shows a field by a function: spec_shown = shown_column(as_json, "spec")."""

    @admin.display(description=field.replace("_", " "))
    def column(self: object, obj: Model) -> SafeString | str:
        return show(getattr(obj, field))

    return column


def link_column(
    model: str, title: str, *, shown: str = ""
) -> Callable[[object, Model], SafeString | str]:
    """A column with a link to another row: pool = link_column("pools.pool", "pool"). It shows a
    field of that row, or its id.
    """

    @admin.display(description=title)
    def column(self: object, obj: Model) -> SafeString | str:
        text = getattr(getattr(obj, title), shown, None) if shown else None
        return link(model, getattr(obj, f"{title}_id"), text)

    return column


def events_of(obj: Model) -> SafeString | str:
    """The last events of a pool, member, slot or claim, newest first."""
    column = f"{obj._meta.model_name}_id"
    rows = list(Event.objects.filter(**{column: obj.pk}).order_by("-pk")[:SHOWN_EVENTS])
    shown = [
        (
            f"{e.at:%Y-%m-%d %H:%M:%S}",
            e.verb,
            f"{e.before} > {e.after}".strip(" >"),
            e.actor,
            e.reason,
        )
        for e in rows
    ]
    return format_html(
        "{}{}", lines(shown), link_list("kernel.event", "all events", **{column: obj.pk})
    )


def _name(model: str, page: str) -> str:
    return f"admin:{model.replace('.', '_')}_{page}"
