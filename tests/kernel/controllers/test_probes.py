"""The probes `healthz` and `readyz`, and the metrics for Prometheus."""

import pytest
from django.db import OperationalError
from prometheus_client.parser import text_string_to_metric_families

from project.kernel import metrics
from project.kernel.doctor import probe_views
from project.kernel.models import Beat
from project.kernel.outbox.operations import add_operation
from project.kernel.outbox.relay import RELAYS

pytestmark = [pytest.mark.usefixtures("tables"), pytest.mark.urls("project.kernel.urls")]


@pytest.fixture(autouse=True)
def two_controllers(settings):
    settings.BERTH_CONTROLLERS = ["project.kernel.outbox.performer.Performer"]


def beat(**ages: str) -> None:
    for name in ("perform", "worker", *(r.name for r in RELAYS)):
        Beat.objects.create(
            name=name,
            instance="here",
            **({"started_at": ages[name], "at": ages[name]} if name in ages else {}),
        )


def checks(answer) -> dict[str, str]:
    return {c["name"]: c["detail"] for c in answer.json()["checks"] if not c["ok"]}


def test_healthz_makes_no_query(client, django_assert_num_queries):
    with django_assert_num_queries(0):
        answer = client.get("/healthz")
    assert (answer.status_code, answer.content) == (200, b"ok\n")


def test_ready_when_every_controller_moves(client):
    beat()
    answer = client.get("/readyz")
    assert (answer.status_code, answer.json()["ready"]) == (200, True)


def test_not_ready_while_a_loop_is_wedged(client):
    beat(perform="2020-01-01T00:00:00Z")
    answer = client.get("/readyz")
    assert answer.status_code == 503
    assert list(checks(answer)) == ["perform"]
    assert "has not moved" in checks(answer)["perform"]


def test_not_ready_while_a_controller_runs_nowhere(client):
    assert checks(client.get("/readyz"))["perform"] == "no process runs it"


def test_not_ready_while_no_worker_runs(client):
    beat()
    Beat.objects.filter(name="worker").delete()
    assert checks(client.get("/readyz")) == {"worker": "no process runs it"}


def test_readyz_can_be_limited_to_the_web_process(client):
    assert client.get("/readyz?only=web").status_code == 200


def test_not_ready_without_the_database(client, monkeypatch):
    class Away:
        def cursor(self):
            raise OperationalError("password=hunter2")

    monkeypatch.setattr(probe_views, "connection", Away())
    answer = client.get("/readyz")
    assert answer.status_code == 503
    assert checks(answer) == {"database": "does not answer: OperationalError"}


def test_not_ready_before_the_migrations(client, monkeypatch):
    class Behind:
        def __init__(self, connection):
            self.loader = self
            self.graph = self

        def leaf_nodes(self):
            return []

        def migration_plan(self, nodes):
            return ["one"]

    monkeypatch.setattr(probe_views, "MigrationExecutor", Behind)
    monkeypatch.setattr(probe_views, "_is_migrated", False)
    assert "manage.py migrate" in checks(client.get("/readyz"))["database"]


def read_metrics(client, **headers) -> dict[tuple[str, tuple[str, ...]], float]:
    answer = client.get("/metrics", headers=headers)
    assert answer.status_code == 200
    families = text_string_to_metric_families(answer.content.decode())
    return {
        (s.name, tuple(s.labels.values())): s.value for family in families for s in family.samples
    }


def test_metrics_cover_the_outbox_and_the_controllers(client):
    beat()
    add_operation(lane="a", kind="sync", queue="q")
    found = read_metrics(client)
    assert found["berth_operations_open", ("q",)] == 1
    assert found["berth_controller_beat_seconds", ("perform",)] < 60
    assert found["berth_database_up", ()] == 1


def test_metrics_are_served_without_the_database(client, monkeypatch):
    def away():
        raise OperationalError("x")

    monkeypatch.setattr(metrics, "_measures", [away])
    assert read_metrics(client)["berth_database_up", ()] == 0


@pytest.mark.parametrize(
    ("token", "headers", "status"),
    [
        ("", {}, 200),
        ("", {"X-Forwarded-For": "10.0.0.1"}, 403),
        ("secret", {}, 403),
        ("secret", {"Authorization": "Bearer secret"}, 200),
        ("secret", {"Authorization": "Bearer wrong"}, 403),
        ("secret", {"Authorization": "secret"}, 403),
        ("secret", {"Authorization": "Bearer sécret"}, 403),
    ],
)
def test_metrics_need_a_local_client_or_a_token(client, settings, token, headers, status):
    settings.BERTH_METRICS_TOKEN = token
    assert client.get("/metrics", headers=headers).status_code == status


def test_metrics_are_refused_to_other_machines(client):
    assert client.get("/metrics", REMOTE_ADDR="10.0.0.7").status_code == 403
