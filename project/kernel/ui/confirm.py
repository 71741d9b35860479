"""Confirmation dialogs: what an action does and affects, the reason, and a typed name for a
dangerous action.

The same question is rendered as a dialog over the page, and as a page of its own for browsers
without scripts. The view computes the affected objects again when the person confirms. If they
have changed, the action is not carried out and the dialog is shown again.
"""

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from urllib.parse import urlsplit

from django.contrib import messages
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.shortcuts import render

from project.kernel.errors import BerthError, Conflict, FieldError, Forbidden, NotFound
from project.kernel.validation import LONGEST_REASON


@dataclass(frozen=True, slots=True)
class Field:
    name: str
    label: str
    kind: str = "text"  # text | number | textarea | select | datetime | hidden
    value: str = ""
    help: str = ""
    options: Sequence[tuple[str, str]] = ()
    is_needed: bool = False
    errors: tuple[FieldError, ...] = ()
    limits: Mapping[str, int] = field(default_factory=dict)  # attributes: min, max, maxlength


@dataclass(frozen=True, slots=True)
class Affected:
    """A row of the table of affected objects: name, present state, state after the action."""

    name: str
    href: str
    detail: str
    now: tuple[str, str]  # CSS class and text
    then: tuple[str, str]
    loses: str = ""


@dataclass(frozen=True, slots=True)
class Question:
    title: str
    verb: str  # text of the button
    href: str = ""  # address of the dialog and of its form; default: the path of the request
    intro: str = ""
    fields: Sequence[Field] = ()
    affected: Sequence[Affected] = ()
    affected_more: int = 0  # affected objects that the table leaves out
    each: str = "claim"  # noun for a row of the table
    last: str = "Loses"  # heading of the last column
    facts: Sequence[tuple[str, str]] = ()
    reason: str = "needed"  # needed | optional | none
    reason_hint: str = "Recorded in the event log"
    typed: str = ""  # the text that the person must type
    is_dangerous: bool = False
    note: str = ""  # beside the buttons
    is_recorded: bool = True  # False: a step that changes nothing
    given_reason: str = ""
    given_typed: str = ""
    problems: Sequence[FieldError] = ()
    nothing: str = ""  # why the action has no effect; the dialog then has no button

    @property
    def seen(self) -> str:
        """Digest of the table of affected objects, which tells whether it has changed."""
        text = repr(
            [(a.name, a.now, a.then, a.loses) for a in self.affected]
            + [("more", self.affected_more)]
        )
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    @property
    def count(self) -> int:
        return len(self.affected) + self.affected_more


@dataclass(frozen=True, slots=True)
class Done:
    say: str  # message about the result
    href: str = ""  # the next page, if the present one is outdated


@dataclass(frozen=True, slots=True)
class ConfirmInput:
    """The values of the submitted form."""

    reason: str
    values: Mapping[str, str] = field(default_factory=dict)
    lists: Mapping[str, list[str]] = field(default_factory=dict)


Perform = Callable[[ConfirmInput], Done]


def confirm_action(
    request: HttpRequest, question: Question, perform: Perform, frame: Mapping[str, object]
) -> HttpResponse:
    """Shows the dialog, or calls `perform` if the form is complete. `frame` is the context of the
    page around the dialog.
    """
    question = replace(question, href=question.href or request.path)
    if request.method != "POST":
        return show(request, question, frame)
    if question.nothing:
        return show(request, question, frame, status=409)
    given = read(request, question)
    answered = replace(
        question,
        given_reason=given.reason,
        given_typed=request.POST.get("typed", ""),
        fields=[
            f if f.kind == "hiddens" else replace(f, value=given.values.get(f.name, ""))
            for f in question.fields
        ],
    )
    if problems := list_problems(request, question, given):
        return show(request, with_problems(answered, problems), frame, status=422)
    if question.affected and request.POST.get("seen") != question.seen:
        changed = FieldError(
            "",
            "The affected objects have changed since you opened this dialog.",
            "Check the list again, then confirm. Nothing was changed.",
        )
        return show(request, with_problems(answered, [changed]), frame, status=409)
    try:
        done = perform(given)
    except (Forbidden, NotFound):
        raise
    except BerthError as error:
        return show(
            request,
            with_problems(answered, errors_of(error)),
            frame,
            status=409 if isinstance(error, Conflict) else 422,
        )
    return finish(request, done)


def read(request: HttpRequest, question: Question) -> ConfirmInput:
    names = [f.name for f in question.fields]
    return ConfirmInput(
        reason=request.POST.get("reason", "").strip(),
        values={name: request.POST.get(name, "").strip() for name in names},
        lists={name: request.POST.getlist(name) for name in names},
    )


def list_problems(
    request: HttpRequest, question: Question, given: ConfirmInput
) -> list[FieldError]:
    found = []
    if question.reason == "needed" and not given.reason:
        found.append(FieldError("reason", "Reason is empty.", "Give a reason in a few words."))
    if len(given.reason) > LONGEST_REASON:
        found.append(
            FieldError(
                "reason",
                f"Reason is too long, {len(given.reason)} characters.",
                f"Use at most {LONGEST_REASON}.",
            )
        )
    if question.typed and request.POST.get("typed", "") != question.typed:
        found.append(
            FieldError(
                "typed", "The typed name does not match.", f"Type {question.typed} to confirm."
            )
        )
    for f in question.fields:
        if f.is_needed and not given.values.get(f.name):
            found.append(FieldError(f.name, f"{f.label} is empty.", "Fill in the field."))
    return found


def errors_of(error: BerthError) -> list[FieldError]:
    return list(error.fields) or [FieldError("", error.detail, error.way_out)]


def with_problems(question: Question, problems: Sequence[FieldError]) -> Question:
    """The question with each problem at its field, and all other problems at the top."""
    names = {f.name for f in question.fields} | {"reason", "typed"}
    fields = [
        replace(f, errors=tuple(p for p in problems if top(p.field) == f.name))
        for f in question.fields
    ]
    return replace(
        question,
        fields=fields,
        problems=[
            p for p in problems if top(p.field) not in names or top(p.field) in ("reason", "typed")
        ],
    )


def top(name: str) -> str:
    """The form field of an error's path: `spec` for `spec.layout[2]`."""
    return name.partition(".")[0].partition("[")[0]


def show(
    request: HttpRequest, question: Question, frame: Mapping[str, object], status: int = 200
) -> HttpResponse:
    is_part = bool(request.headers.get("HX-Request"))
    template = "ui/confirm.html" if is_part else "ui/confirm_page.html"
    context = {**frame, "question": question, "is_part": is_part, "back": back_of(request)}
    return render(request, template, context, status=status)


def finish(request: HttpRequest, done: Done) -> HttpResponse:
    if request.headers.get("HX-Request"):
        answer = HttpResponse(status=204)
        if done.href:
            messages.success(request, done.say)
            answer["HX-Redirect"] = done.href
        else:
            answer["HX-Trigger"] = as_trigger({"berth:done": {"say": done.say}})
        return answer
    messages.success(request, done.say)
    return HttpResponseRedirect(done.href or back_of(request) or "/")


def as_trigger(events: Mapping[str, object]) -> str:
    """The value of the header HX-Trigger, in ASCII."""
    return json.dumps(events, ensure_ascii=True)


def back_of(request: HttpRequest) -> str:
    """The path of the page that opened the dialog; empty if it belongs to another host."""
    referrer = request.POST.get("back") or request.headers.get("Referer", "")
    at = urlsplit(referrer)
    if at.netloc and at.netloc != request.get_host():
        return ""
    path = at.path or ""
    if not path.startswith("/") or path.startswith("//") or path == request.path:
        return ""
    return f"{path}?{at.query}" if at.query else path
