"""Views for probes and Prometheus. They need no session and return no secrets."""

from django.db import Error as DatabaseError
from django.db import connection
from django.db.migrations.executor import MigrationExecutor
from django.http import HttpRequest, HttpResponse, HttpResponseForbidden, JsonResponse
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_safe
from prometheus_client import CONTENT_TYPE_LATEST

from project.kernel import metrics
from project.kernel.controllers import heartbeats

from .health import check_expected_loops

OK = b"ok\n"


@require_safe
def healthz(request: HttpRequest) -> HttpResponse:
    """The process answers. The view does not use the database, so a slow database restarts no web
    process.
    """
    return HttpResponse(OK, content_type="text/plain")


@never_cache
@require_safe
def readyz(request: HttpRequest) -> JsonResponse:
    """The database answers and has all migrations, each controller runs in some process, and a
    worker takes tasks. `?only=web` checks the database alone.
    """
    checks = [_check_database()]
    if checks[0].is_well and request.GET.get("only") != "web":
        checks += check_expected_loops()
    is_ready = all(c.is_well for c in checks)
    body = {
        "ready": is_ready,
        "checks": [{"name": c.name, "ok": c.is_well, "detail": c.detail} for c in checks],
    }
    return JsonResponse(body, status=200 if is_ready else 503)


@never_cache
@require_safe
def show_metrics(request: HttpRequest) -> HttpResponse:
    if not _may_read_metrics(request):
        return HttpResponseForbidden(metrics.REFUSAL, content_type="text/plain")
    return HttpResponse(metrics.render(), content_type=CONTENT_TYPE_LATEST)


_is_migrated = False  # migrations are never undone, so True is final


def _check_database() -> heartbeats.Health:
    global _is_migrated
    try:
        with connection.cursor() as cursor:
            cursor.execute("SELECT 1")
        if not _is_migrated:
            executor = MigrationExecutor(connection)
            _is_migrated = not executor.migration_plan(executor.loader.graph.leaf_nodes())
    except DatabaseError as error:
        return heartbeats.Health("database", False, f"does not answer: {type(error).__name__}")
    return heartbeats.Health(
        "database", _is_migrated, "" if _is_migrated else "waits for migrations: manage.py migrate"
    )


def _may_read_metrics(request: HttpRequest) -> bool:
    """A forwarded request never counts as local: behind a local proxy every client seems local."""
    is_forwarded = "X-Forwarded-For" in request.headers or "Forwarded" in request.headers
    is_local = not is_forwarded and request.META.get("REMOTE_ADDR") in metrics.LOOPBACK
    return metrics.may_read(request.headers.get("Authorization", ""), is_local=is_local)
