"""Actions of the admin: a form asks for the reason and shows the affected rows, then the action
calls a service for each row.

One method serves both the list (selected rows) and the page of a row (a button).
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import wraps
from typing import cast

from django.contrib import messages
from django.contrib.admin.helpers import ACTION_CHECKBOX_NAME
from django.core.exceptions import PermissionDenied
from django.db.models import Model, QuerySet
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.template.response import TemplateResponse
from django.urls import reverse
from unfold.admin import ModelAdmin
from unfold.decorators import action as admin_action

from project.kernel.actor import acting_as
from project.kernel.errors import BerthError
from project.kernel.validation import LONGEST_REASON

MOST_ROWS = 100


@dataclass(frozen=True, slots=True)
class Number:
    """A number that the form of an action asks for."""

    label: str
    initial: int
    least: int
    most: int


RowAction = Callable[..., object]


def service_action(
    label: str,
    *,
    effect: str,
    numbers: Mapping[str, Number] | None = None,
    is_typed: bool = False,
) -> Callable[[RowAction], RowAction]:
    """Makes an admin action of `do(self, obj, reason=..., **numbers)`, which calls the service and
    may return a message. `is_typed`: the person must type the id or the number of rows.
    """

    def decorate(do: RowAction) -> RowAction:
        @wraps(do)
        def action(
            self: ModelAdmin,
            request: HttpRequest,
            queryset: QuerySet[Model] | None = None,
            object_id: str | None = None,
        ) -> HttpResponse | None:
            if not self.admin_site.has_permission(request):
                raise PermissionDenied
            if queryset is None:
                queryset = self.get_queryset(request).filter(pk=object_id)
            rows = list(queryset.order_by("pk")[: MOST_ROWS + 1])
            page, args = ("changelist", []) if object_id is None else ("change", [object_id])
            back = reverse(f"admin:{self.opts.app_label}_{self.opts.model_name}_{page}", args=args)
            if not rows or len(rows) > MOST_ROWS:
                messages.error(request, f"{label}: select at least 1 and at most {MOST_ROWS} rows.")
                return HttpResponseRedirect(back)
            form = _Form(request, rows, numbers or {}, is_typed)
            if not form.is_complete():
                return _page(
                    self,
                    request,
                    action=do.__name__,
                    label=label,
                    effect=effect,
                    form=form,
                    rows=rows,
                    back=back,
                )
            _perform(self, request, do, label, rows, {"reason": form.reason, **form.values})
            return HttpResponseRedirect(back)

        return cast(RowAction, admin_action(action, description=label, url_path=do.__name__))

    return decorate


class _Form:
    """The values of the form and their errors. Errors count only after the form was submitted."""

    def __init__(
        self,
        request: HttpRequest,
        rows: list[Model],
        numbers: Mapping[str, Number],
        is_typed: bool,
    ) -> None:
        self.is_asked = request.method == "POST" and "asked" in request.POST
        self.reason = request.POST.get("reason", "").strip()[:LONGEST_REASON]
        self.phrase = (
            (str(rows[0].pk) if len(rows) == 1 else f"{len(rows)} rows") if is_typed else ""
        )
        self.numbers = numbers
        self.errors: list[str] = []
        self.values: dict[str, int] = {}
        self.given: list[tuple[str, Number, str]] = []
        for name, number in numbers.items():
            text = request.POST.get(name, str(number.initial)).strip()
            self.given.append((name, number, text))
            try:
                self.values[name] = int(text)
                is_good = number.least <= self.values[name] <= number.most
            except ValueError:
                is_good = False
            if not is_good:
                self.errors.append(
                    f"{number.label} must be a whole number from {number.least} to {number.most}."
                )
        if not self.reason:
            self.errors.append("Reason is empty. Give one: the event log records it.")
        if self.phrase and request.POST.get("typed", "").strip() != self.phrase:
            self.errors.append(f"Type {self.phrase} to confirm.")

    def is_complete(self) -> bool:
        return self.is_asked and not self.errors


def _perform(
    self: ModelAdmin,
    request: HttpRequest,
    do: RowAction,
    label: str,
    rows: list[Model],
    values: dict[str, str | int],
) -> None:
    done = 0
    with acting_as(request.user.get_username()):
        for row in rows:
            try:
                note = do(self, row, **values)
            except BerthError as error:
                messages.error(
                    request,
                    f"{self.opts.verbose_name} {row}: {error.detail} {error.way_out}".strip(),
                )
                continue
            done += 1
            if note:
                messages.info(request, str(note))
    if done:
        messages.success(request, f"{label}: done for {done} of {len(rows)}.")


def _page(
    self: ModelAdmin,
    request: HttpRequest,
    *,
    action: str,
    label: str,
    effect: str,
    form: _Form,
    rows: list[Model],
    back: str,
) -> HttpResponse:
    context = {
        **self.admin_site.each_context(request),
        "opts": self.opts,
        "title": label,
        "action": action,
        "effect": effect,
        "rows": rows,
        "form": form,
        "errors": form.errors if form.is_asked else [],
        "back": back,
        "checkbox": ACTION_CHECKBOX_NAME,
    }
    return TemplateResponse(request, "admin/berth/ask.html", context)
