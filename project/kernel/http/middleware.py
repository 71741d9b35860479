"""Security headers of responses, redirects to addresses with a slash, and the end of sessions."""

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
    """Sets the content policy of the path, keeps personal pages out of shared caches, and marks
    cookies as secure if the request came over HTTPS.
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
    """Redirects an API call without the final slash with 308, which keeps method and body. Django's
    own redirect turns a POST into a GET: the client would get the list with 200, and take its
    object for created.
    """

    def process_request(self, request: HttpRequest) -> HttpResponsePermanentRedirect | None:
        if "\x00" in request.path_info:
            raise Http404("An address must not contain a NUL character.")
        if (
            request.method not in ("GET", "HEAD")
            and request.path_info.startswith("/api/")
            and self.should_redirect_with_slash(request)
        ):
            request.get_host()  # raises for an unknown host, before a response names it
            return redirect_call(request.get_full_path(force_append_slash=True))
        return super().process_request(request)


class SessionLimits:
    """Signs a person out when the session has expired."""

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
