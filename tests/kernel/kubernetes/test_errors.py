"""Answers of the API server become error types that decide the retry, with a message that names
the way out.
"""

from typing import Any

import pytest

from pools.providers.kubernetes.field_errors import fields_of
from project.kernel.kubernetes.circuit_breaker import Breaker
from project.kernel.kubernetes.errors import (
    AlreadyExists,
    ApiCall,
    Expired,
    NamespaceGone,
    ObjectChanged,
    explain,
)
from project.kernel.outbox.operations import (
    Misconfigured,
    NotFoundOutside,
    ProviderError,
    QuotaExceeded,
    Throttled,
    Unauthorised,
)
from project.kernel.retry import BACKOFF, STOPS_LANE, decide_retry

PLACE = "namespace ci of context prod"
CREATE, LIST, DELETE = (
    ApiCall("create", "pods", "m1", PLACE),
    ApiCall("list", "pods", place=PLACE),
    ApiCall("delete", "pods", "m1", PLACE),
)


def status(message: str, **details: Any) -> dict[str, Any]:
    return {"kind": "Status", "message": message, "details": details}


@pytest.mark.parametrize(
    ("code", "body", "call", "kind", "words"),
    [
        (401, status("Unauthorized"), LIST, Unauthorised, "Renew them"),
        (
            403,
            status('pods is forbidden: User "a" cannot list resource "pods"'),
            LIST,
            Unauthorised,
            "deploy/kubernetes/role.yaml",
        ),
        (
            403,
            status('pods is forbidden: User "a" cannot create resource "pods"'),
            CREATE,
            Unauthorised,
            "Berth may not create pods",
        ),
        (
            403,
            status("pods is forbidden: exceeded quota: small"),
            CREATE,
            QuotaExceeded,
            "members.max",
        ),
        (
            403,
            status('violates PodSecurity "restricted"'),
            CREATE,
            Misconfigured,
            "provider.template",
        ),
        (
            403,
            status("unable to create: namespace ci is being terminated"),
            CREATE,
            Misconfigured,
            "being deleted",
        ),
        (
            404,
            status('namespaces "ci" not found', name="ci", kind="namespaces"),
            CREATE,
            NamespaceGone,
            "Create the namespace",
        ),
        (
            404,
            status('pods "m1" not found', name="m1", kind="pods"),
            DELETE,
            NotFoundOutside,
            "no pods m1",
        ),
        (404, {"message": "404 page not found"}, LIST, Misconfigured, "names an API server"),
        (404, {"message": "<html>"}, DELETE, Misconfigured, "names an API server"),
        (409, status("exists"), CREATE, AlreadyExists, "already"),
        (409, status("uid"), DELETE, ObjectChanged, "changed meanwhile"),
        (410, status("too old"), LIST, Expired, "too old"),
        (422, status("spec is invalid"), CREATE, Misconfigured, "Correct provider.template"),
        (400, status("strict decoding error"), CREATE, Misconfigured, "Correct provider.template"),
        (429, status("slow"), LIST, Throttled, "slow down"),
        (500, status("etcd"), LIST, ProviderError, "500"),
        (503, {}, LIST, ProviderError, "503"),
        (302, {}, LIST, ProviderError, "302"),
    ],
)
def test_each_api_answer_has_its_error_type_and_way_out(
    code: int, body: dict[str, Any], call: ApiCall, kind: type[ProviderError], words: str
) -> None:
    found = explain(code, body, call)
    assert type(found) is kind
    assert words in str(found)
    assert call.place in str(found) or code in (404, 410) or "namespace" in str(found)


def test_missing_namespace_is_not_reported_as_a_missing_pod() -> None:
    """A caller that deletes a pod takes NotFound as success."""
    found = explain(
        404,
        status('namespaces "ci" not found', name="ci", kind="namespaces"),
        ApiCall("get", "pods", "m1", PLACE),
    )
    assert not isinstance(found, NotFoundOutside)


@pytest.mark.parametrize(("asked", "waits"), [(5.0, 5.0), (-1.0, 0.0), (1e9, 600.0), (None, None)])
def test_retry_after_of_the_server_is_obeyed_within_bounds(
    asked: float | None, waits: float | None
) -> None:
    for code in (429, 503):
        assert explain(code, {}, LIST, asked).retry_after == waits


def test_errors_that_a_person_fixes_are_retried_soon_and_for_ever() -> None:
    for code in ("misconfigured", "unauthorised"):
        verdict = decide_retry(code, 1000, 1.0)
        assert not verdict.is_permanent
        assert verdict.delay <= 60
        assert code in BACKOFF
        assert code in STOPS_LANE


def test_refusal_is_reported_at_its_fields() -> None:
    causes = [
        {"field": "spec.containers[0].image", "message": "Required value"},
        {
            "field": "spec.containers[0].resources.requests",
            "message": "must be less than or equal to cpu limit",
        },
        {"field": "spec.containers[0].resources.limits[cpu]", "message": "Invalid value"},
        {"field": "spec.tolerations[1].operator", "message": "Unsupported value"},
        {"field": "spec.imagePullSecrets[0].name", "message": "Required value"},
        {"field": "spec.priority", "message": "Forbidden"},
    ]
    found = fields_of({"details": {"causes": causes}}, "provider.template")
    assert [e.field.removeprefix("provider.template") for e in found] == [
        ".image", ".resources.requests", ".resources.limits.cpu", ".tolerations[1].operator",
        ".image_pull_secrets[0]", "",
    ]  # fmt: skip
    assert found[-1].way_out == "The cluster names the field spec.priority."


@pytest.mark.parametrize(
    ("message", "field"),
    [
        (
            'error looking up service account ci/agent: serviceaccount "agent" not found',
            "service_account",
        ),
        ('pods "x" is forbidden: violates PodSecurity "restricted:latest"', "user"),
        ("failed quota: small: must specify limits.cpu", "resources"),
        ("maximum memory usage per Container is 1Gi, but limit is 2Gi", "resources"),
        ("something else", ""),
    ],
)
def test_admission_message_is_reported_at_the_field_it_names(message: str, field: str) -> None:
    (found,) = fields_of({"message": message}, "provider.template")
    assert found.field == "provider.template" + (f".{field}" if field else "")
    assert message in found.message


def test_breaker_opens_after_repeated_failures_and_lets_one_call_try() -> None:
    breaker = Breaker()
    for _ in range(3):
        breaker.enter()
        breaker.leave(ProviderError("no answer"))
    with pytest.raises(ProviderError, match="no answer") as caught:
        breaker.enter()
    assert caught.value.retry_after is not None
    breaker._until = 0.0  # the time is over: one call tries, later calls are refused
    breaker.enter()
    with pytest.raises(ProviderError):
        breaker.enter()
    breaker.leave(None)
    breaker.enter()


def test_error_answers_do_not_open_the_breaker() -> None:
    breaker = Breaker()
    for _ in range(9):
        breaker.enter()
        breaker.leave(Unauthorised("no"))
    breaker.enter()
