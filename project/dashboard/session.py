"""Signing in and out."""

import hashlib

from django.conf import settings
from django.contrib.auth import authenticate, login, logout
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.shortcuts import render
from django.urls import reverse
from django.utils.http import url_has_allowed_host_and_scheme
from django.views.decorators.cache import never_cache
from django.views.decorators.csrf import csrf_protect
from django.views.decorators.debug import sensitive_post_parameters
from django.views.decorators.http import require_POST

from project.kernel.events.log import record
from project.kernel.ui import formatting


@sensitive_post_parameters("password")
@never_cache
@csrf_protect
def sign_in(request: HttpRequest) -> HttpResponse:
    target = safe_next(request, request.POST.get("next") or request.GET.get("next", ""))
    if request.user.is_authenticated and request.method != "POST":
        return HttpResponseRedirect(target)
    problem, status = "", 200
    name = request.POST.get("username", "")[:150]
    if request.method == "POST":
        user = authenticate(request, username=name, password=request.POST.get("password", ""))
        if user is not None:
            login(request, user)
            record("sign_in", actor=user.get_username(), data={"user": user.get_username()})
            return HttpResponseRedirect(target)
        wait = getattr(request, "sign_in_wait", 0)
        status = 429 if wait else 422
        problem = (
            f"Too many failed sign-ins. Try again in {formatting.duration(wait)}."
            if wait
            else (
                "User name or password is wrong. After a few failed sign-ins you have to wait "
                "before the next."
            )
        )
    context = {"problem": problem, "name": name, "next": target, "host": request.get_host()}
    return render(request, "dashboard/sign_in_page.html", context, status=status)


@require_POST
def sign_out(request: HttpRequest) -> HttpResponse:
    if request.user.is_authenticated:
        user, key = request.user.get_username(), request.session.session_key or ""
        # The session ends before its event, so that receivers of the event find it gone.
        logout(request)
        record(
            "sign_out",
            actor=user,
            data={"user": user, "session": hashlib.sha256(key.encode()).hexdigest()[:12]},
        )
    return HttpResponseRedirect(reverse(settings.LOGIN_URL))


def safe_next(request: HttpRequest, target: str) -> str:
    """The target if it is a path of this site, else the overview."""
    is_own = url_has_allowed_host_and_scheme(
        target, allowed_hosts={request.get_host()}, require_https=request.is_secure()
    )
    return target if target.startswith("/") and is_own else "/"
