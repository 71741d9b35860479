"""The admin site: all tables, for superusers. It uses Berth's sign-in page, which limits the rate
of attempts.
"""

from django.contrib.auth.views import redirect_to_login
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.urls import reverse
from django.utils.http import url_has_allowed_host_and_scheme
from unfold.sites import UnfoldAdminSite


class BerthAdminSite(UnfoldAdminSite):
    site_header = site_title = "Berth"
    index_title = "All tables"
    enable_nav_sidebar = True

    def has_permission(self, request: HttpRequest) -> bool:
        """True for superusers only: the admin shows rows of all pools, so a role in some pools does
        not suffice.
        """
        return bool(request.user.is_active and request.user.is_superuser)

    def login(
        self, request: HttpRequest, extra_context: dict[str, object] | None = None
    ) -> HttpResponse:
        if request.user.is_authenticated and not self.has_permission(request):
            raise PermissionDenied
        wanted, index = request.GET.get("next", ""), reverse("admin:index", current_app=self.name)
        if not url_has_allowed_host_and_scheme(
            wanted, allowed_hosts={request.get_host()}, require_https=request.is_secure()
        ):
            wanted = index
        return (
            HttpResponseRedirect(wanted)
            if self.has_permission(request)
            else redirect_to_login(wanted)
        )
