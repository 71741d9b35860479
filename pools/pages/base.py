"""Base of all pages: the signed-in person, their rights, and the position of the event log at which
the page is rendered.
"""

from collections.abc import Callable
from functools import wraps
from typing import Any
from urllib.parse import quote

from django.conf import settings
from django.http import HttpRequest, HttpResponse, HttpResponseBase, HttpResponseRedirect
from django.shortcuts import render
from django.urls import reverse
from django.utils import timezone

from pools.access.permissions import ACTIONS, Identity, load_identity, require
from pools.lifecycle.selectors import find_pool
from pools.models import Pool
from project.kernel.actor import acting_as
from project.kernel.errors import BerthError, NotFound
from project.kernel.events.log import now_position
from project.kernel.http.problems import status_of
from project.kernel.ui.confirm import Perform, Question, confirm_action
from project.kernel.version import __version__

NAV = (
    ("overview", "Overview", "/"),
    ("claims", "Claims", "/claims/"),
    ("approvals", "Approvals", "/approvals/"),
    ("scaling", "Scaling", "/scaling/"),
    ("events", "Events", "/events/"),
)


class PageRequest(HttpRequest):
    """A request of a signed-in person."""

    identity: Identity
    at: str


def signed_in(view: Callable[..., HttpResponseBase]) -> Callable[..., HttpResponseBase]:
    """Identifies the person, acts in their name, and shows a refusal as a page with the reason."""

    @wraps(view)
    def inner(request: Any, *args: Any, **kwargs: Any) -> HttpResponseBase:
        identity = load_identity(request.user.pk) if request.user.is_authenticated else None
        if identity is None:
            return to_sign_in(request)
        request.identity, request.at = identity, str(now_position())
        with acting_as(identity.actor):
            try:
                return view(request, *args, **kwargs)
            except BerthError as error:
                return refused(request, error)

    return inner


def to_sign_in(request: HttpRequest) -> HttpResponse:
    address = f"{reverse(settings.LOGIN_URL)}?next={quote(request.get_full_path() if request.method == 'GET' else '/')}"  # noqa: E501
    if request.headers.get("HX-Request"):
        answer = HttpResponse(status=204)
        answer["HX-Redirect"] = address
        return answer
    return HttpResponseRedirect(address)


def page(
    request: PageRequest, template: str, here: str = "", status: int = 200, **context: object
) -> HttpResponse:
    """The whole page. `here` is its entry in the navigation."""
    return render(request, template, frame(request, here) | context, status=status)


def frame(request: PageRequest, here: str) -> dict[str, Any]:
    return {
        "identity": request.identity,
        "at": request.at,
        "build": __version__,
        "nav": NAV,
        "here": here,
        "is_live": True,
        "now": timezone.now(),
    }


def confirm(request: PageRequest, question: Question, perform: Perform, here: str) -> HttpResponse:
    """The dialog of an action over the page `here`; after the form is sent, the action's answer."""
    return confirm_action(request, question, perform, frame(request, here))


def refused(request: PageRequest, error: BerthError) -> HttpResponse:
    status = status_of(error)
    if request.headers.get("HX-Request") or request.headers.get("X-Part"):
        return render(
            request,
            "ui/refused_dialog.html",
            {"error": error},
            status=200 if request.headers.get("HX-Request") else status,
        )
    return page(request, "ui/error_page.html", status=status, code=status, error=error)


def find_visible_pool(identity: Identity, name: str) -> Pool | None:
    pool = find_pool(name)
    return pool if pool is not None and identity.may("read", pool.pk) else None


def visible_pool(identity: Identity, name: str) -> Pool:
    """The pool. Raises NotFound also for a pool that the identity may not see."""
    pool = find_visible_pool(identity, name)
    if pool is None:
        raise NotFound(
            f"There is no pool {name}.",
            way_out="It may have been deleted, or you have no role in it: ask one of its admins.",
        )
    return pool


def pool_for(identity: Identity, name: str, action: str) -> Pool:
    """The pool. Raises Forbidden if the identity may not do the action."""
    pool = visible_pool(identity, name)
    require(identity, action, pool)
    return pool


def action(
    word: str, href: str, why: str, *, is_dangerous: bool = False, is_page: bool = False
) -> dict[str, object]:
    """A button. `why` says why it is off; empty: it is on. `is_page`: it leads to a page instead of
    a dialog.
    """
    return {
        "word": word, "href": href, "why": why, "is_dangerous": is_dangerous, "is_page": is_page
    }  # fmt: skip


def explain_missing_role(identity: Identity, action: str, pool_id: int | None) -> str:
    """Why a button is disabled for this identity; empty: it is enabled."""
    return "" if identity.may(action, pool_id) else f"This needs the role {ACTIONS[action]}."
