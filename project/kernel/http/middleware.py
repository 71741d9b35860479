"""What every answer carries, and the end of sessions."""

import time
from collections.abc import Callable

from django.conf import settings
from django.contrib.auth import logout
from django.http import Http404, HttpRequest, HttpResponse, HttpResponsePermanentRedirect
from django.middleware.common import CommonMiddleware

from project.kernel.security.sessions import is_over, record_activity

from .problems import redirect_call

Answer = Callable[[HttpRequest], HttpResponse]


class SecurityHeaders:
    """The content policy of the path; nothing personal in shared caches; no cookie beside HTTPS
    where the request came by it.
    """

    def __init__(self, get_response: Answer) -> None:
        self.get_response = get_response
        self.policies = sorted(
            settings.BERTH_CONTENT_POLICIES.items(), key=lambda pair: -len(pair[0])
        )

    def __call__(self, request: HttpRequest) -> HttpResponse:
        response = self.get_response(request)
        policy = next(
            policy for prefix, policy in self.policies if request.path_info.startswith(prefix)
        )
        response.headers.setdefault("Content-Security-Policy", policy)
        response.headers.setdefault(
            "Permissions-Policy", "camera=(), geolocation=(), microphone=(), payment=(), usb=()"
        )
        if response.cookies or "Cookie" in response.headers.get("Vary", ""):
            response.headers.setdefault("Cache-Control", "private, no-store")
        if request.is_secure():
            for cookie in response.cookies.values():
                cookie["secure"] = True
        return response


class Addresses(CommonMiddleware):
    """A call whose address lacks the slash at its end is sent on as it is. Django's own redirect
    makes a GET of a POST: whoever follows it would get the list, with 200, and believe that
    something was made."""

    def process_request(self, request: HttpRequest) -> HttpResponsePermanentRedirect | None:
        if "\x00" in request.path_info:
            raise Http404("An address holds no NUL character.")
        if (
            request.method not in ("GET", "HEAD")
            and request.path_info.startswith("/api/")
            and self.should_redirect_with_slash(request)
        ):
            request.get_host()  # refused before it stands in an answer
            return redirect_call(request.get_full_path(force_append_slash=True))
        return super().process_request(request)


class SessionLimits:
    """Signs out a person whose session is over."""

    def __init__(self, get_response: Answer) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        if settings.SESSION_COOKIE_NAME in request.COOKIES and request.user.is_authenticated:
            now = time.time()
            if is_over(request.session, now):
                logout(request)
            else:
                record_activity(request.session, now)
        return self.get_response(request)
