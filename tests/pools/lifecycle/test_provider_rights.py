"""Only admins of all pools choose what code a provider runs and where, and only allowed
providers are used.
"""

import copy
import json
from typing import Any

import pytest
from django.test import Client

from claims.scaling.scaler import dry_run
from pools.lifecycle.manifests import validate_pool
from pools.lifecycle.services import create_pool
from pools.models import Member, Pool
from pools.providers.base import known_providers
from pools.providers.kubernetes import options
from project.dashboard.installation import list_problems
from project.kernel.errors import Refused
from slots.doctor.checks import find_providers_not_allowed
from slots.members.services import add_members
from tests.api.conftest import Answer, Caller, Callers
from tests.api.helpers import make_pool
from tests.dashboard.helpers import chief, person

PODS: dict[str, Any] = {
    "kind": "kubernetes",
    "context": "prod",
    "namespace": "agents",
    "url": "https://berth.example/",
    "template": {
        "image": "registry.example/agent:1",
        "service_account": "agent",
        "resources": {"limits": {"memory": "1Gi"}},
    },
}
# One change for each option of each provider that decides what code runs, or where, or what it
# may reach.
DECIDING: dict[str, Any] = {
    "provider.context": {"context": "test"},
    "provider.namespace": {"namespace": "kube-system"},
    "provider.url": {"url": "https://elsewhere.example/"},
    "provider.template.image": {"template": {"image": "registry.example/other:1"}},
    "provider.template.command": {"template": {"command": ["sh"]}},
    "provider.template.args": {"template": {"args": ["-c", "id"]}},
    "provider.template.env": {"template": {"env": {"LD_PRELOAD": "/x.so"}}},
    "provider.template.service_account": {"template": {"service_account": "cluster-admin"}},
    "provider.template.image_pull_secrets": {"template": {"image_pull_secrets": ["others"]}},
    "provider.template.node_selector": {
        "template": {"node_selector": {"kubernetes.io/os": "linux"}}
    },
    "provider.template.tolerations": {"template": {"tolerations": [{"operator": "Exists"}]}},
    "provider.template.labels": {"template": {"labels": {"network": "open"}}},
    "provider.template.annotations": {
        "template": {"annotations": {"inject.example.com/role": "root"}}
    },
    "provider.template.user": {"template": {"user": 0}},
    "provider.template.writable_root": {"template": {"writable_root": True}},
    "provider.agent": {"agent": False},
}


def change(caller: Caller, pool: Pool, method: str, body: Any) -> Answer:
    etag = caller.get(f"pools/{pool.name}/").headers["ETag"]
    return caller(method, f"pools/{pool.name}/", body, If_Match=etag)


def empty_pool(provider: Any = "static", **config: Any) -> Pool:
    return create_pool(
        {"name": "env", "provider": provider, "slots": ["any"], "members": {"max": 3}} | config
    )


@pytest.mark.parametrize("kind", ["local", "agents", {"kind": "local", "env": {"TZ": "UTC"}}, PODS])
@pytest.mark.parametrize("method", ["PATCH", "PUT"])
def test_admin_of_one_pool_cannot_change_its_provider(
    caller: Callers, method: str, kind: Any
) -> None:
    pool = empty_pool()
    answer = change(
        caller("admin", pool),
        pool,
        method,
        {"provider": kind, "slots": ["any"], "members": {"max": 3}},
    )
    assert (answer.status, answer.body["role"], answer.body["errors"][0]["field"]) == (
        403,
        "admin",
        "provider.kind",
    ), answer.body
    assert "in all pools" in answer.body["detail"] and answer.body["errors"][0]["way_out"]
    pool.refresh_from_db()
    assert (pool.provider, pool.revision) == ("static", 1)


def test_admin_of_all_pools_changes_a_provider(caller: Callers) -> None:
    pool = empty_pool()
    assert change(caller("admin"), pool, "PATCH", {"provider": "local"}).status == 200
    pool.refresh_from_db()
    assert pool.provider == "local"


def test_token_limited_to_one_pool_cannot_change_a_provider(caller: Callers) -> None:
    pool = empty_pool()
    assert change(caller("admin", pools=[pool]), pool, "PATCH", {"provider": "local"}).status == 403


def test_environment_of_local_agents_needs_an_admin_of_all_pools(caller: Callers) -> None:
    pool = empty_pool({"kind": "local", "env": {"TZ": "UTC"}})
    for env in ({"HTTPS_PROXY": "http://evil.example:3128"}, None):
        answer = change(
            caller("admin", pool), pool, "PATCH", {"provider": {"kind": "local", "env": env}}
        )
        assert (answer.status, answer.body["errors"][0]["field"].startswith("provider.env")) == (
            403,
            True,
        ), answer.body


@pytest.mark.parametrize(
    ("backends", "field"),
    [
        ({"networks": ["10.0.0.0/8"]}, "backends.networks"),
        ({"networks": ["10.0.0.0/16"], "ports": "1-65535"}, "backends.ports"),
        (None, "backends"),
    ],
)
def test_networks_of_backends_need_an_admin_of_all_pools(
    caller: Callers, backends: Any, field: str
) -> None:
    ports = {"ports": "30000-30009", "shared": True}
    pool = make_pool("env", slots=ports, backends={"networks": ["10.0.0.0/16"]})
    answer = change(caller("admin", pool), pool, "PATCH", {"backends": backends})
    assert (answer.status, answer.body["errors"][0]["field"]) == (403, field)
    config = caller("admin", pool).get("pools/env/").body["config"]
    same = {**config, "description": "the same networks, written out"}
    assert change(caller("admin", pool), pool, "PUT", same).status == 200
    assert change(caller("admin"), pool, "PATCH", {"backends": backends}).status == 200


AWS = {
    "kind": "aws",
    "region": "eu-west-1",
    "subnets": ["subnet-0123456789abcdef0"],
}
PORTS = {"ports": "30000-30049", "shared": True}
ARN = "arn:aws:elasticloadbalancing:eu-west-1:123456789012:loadbalancer/net/{}/0123456789abcdef"


def name_balancer(caller: Caller, pool: str, way: str, arn: str) -> Answer:
    """Try to make a load balancer of the account a member of the pool."""
    named = {"name": "theirs", "external_id": arn}
    if way == "POST":
        return caller.post(f"pools/{pool}/members/", {"members": [named]})
    etag = caller.get(f"pools/{pool}/").headers["ETag"]
    body = {"members": {"max": 3, "list": ["mine", named]}}
    return caller("PATCH", f"pools/{pool}/", body, If_Match=etag)


def test_certificates_of_claims_need_an_admin_of_all_pools(caller: Callers) -> None:
    ports = {"ports": "30000-30009", "shared": True}
    pool = make_pool("env", slots=ports, certificates=["cert-1"])
    for certificates in (["cert-1", "cert-2"], [], None):
        answer = change(caller("admin", pool), pool, "PATCH", {"certificates": certificates})
        assert (answer.status, answer.body["errors"][0]["field"]) == (403, "certificates")
    assert change(caller("admin"), pool, "PATCH", {"certificates": ["cert-2"]}).status == 200


@pytest.mark.parametrize(
    ("way", "field"),
    [("POST", "members[0].external_id"), ("PATCH", "members.list[1].external_id")],
)
def test_load_balancer_of_the_account_needs_an_admin_of_all_pools(
    caller: Callers, way: str, field: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pools.lifecycle.preflight.run_preflight", lambda pool: [])
    members = {"max": 3, "list": ["mine"]}
    pool = create_pool({"name": "evil", "provider": AWS, "slots": PORTS, "members": members})
    answer = name_balancer(caller("admin", pool), "evil", way, ARN.format("shop"))
    assert (answer.status, answer.body["errors"][0]["field"]) == (403, field), answer.body
    assert "in all pools" in answer.body["errors"][0]["message"]
    assert Member.objects.count() == 1
    answer = name_balancer(caller("admin"), "evil", way, ARN.format("shop"))
    assert answer.status in (200, 201), answer.body
    # The configuration with the member that is there is no change.
    config = caller("admin", pool).get("pools/evil/").body["config"]
    same = {**config, "description": "the same load balancers"}
    assert change(caller("admin", pool), pool, "PUT", same).status == 200


@pytest.mark.parametrize(
    ("way", "field"),
    [("POST", "members[0].external_id"), ("PATCH", "members.list[1].external_id")],
)
def test_load_balancer_that_berth_created_is_no_named_member(
    caller: Callers, way: str, field: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pools.lifecycle.preflight.run_preflight", lambda pool: [])
    members = {"max": 3, "list": ["mine"]}
    create_pool({"name": "games", "provider": AWS, "slots": PORTS, "members": members})
    Member.objects.update(external_id=ARN.format("games"), state="ready")
    other = {"ports": "31000-31049", "shared": True}
    create_pool({"name": "more", "provider": AWS, "slots": other, "members": members})
    answer = name_balancer(caller("admin"), "more", way, ARN.format("games"))
    (fault,) = answer.body["errors"]
    assert (answer.status, fault["field"]) == (400, field), answer.body
    assert "for member mine of pool games" in fault["message"]


@pytest.mark.parametrize("field", sorted(DECIDING))
def test_admin_of_one_pool_cannot_change_deciding_pod_options(caller: Callers, field: str) -> None:
    pool = empty_pool(PODS)
    body = {"provider": DECIDING[field]} | ({"slots": 1} if field == "provider.agent" else {})
    answer = change(caller("admin", pool), pool, "PATCH", body)
    assert answer.status == 403 and answer.body["errors"][0]["field"].startswith(field), answer.body


def test_admin_of_one_pool_changes_harmless_provider_options(
    caller: Callers, monkeypatch: pytest.MonkeyPatch
) -> None:
    # There is no cluster here.
    monkeypatch.setattr("pools.lifecycle.preflight.run_preflight", lambda pool: [])
    pool = empty_pool(PODS)
    admin = caller("admin", pool)
    patch = {
        "provider": {"template": {"resources": {"limits": {"memory": "2Gi"}}, "grace": "2h"}},
        "description": "more memory",
    }
    assert change(admin, pool, "PATCH", patch).status == 200
    config = admin.get("pools/env/").body["config"]
    assert (
        change(
            admin, pool, "PUT", {**config, "description": "the same provider, written out"}
        ).status
        == 200
    )
    pool.refresh_from_db()
    assert pool.spec["provider"]["template"]["resources"]["limits"]["memory"] == "2Gi"


def test_every_option_of_pods_is_classified() -> None:
    told = {field.removeprefix("provider.") for field in DECIDING}
    free = known_providers()["kubernetes"].free_options
    assert told | set(free) == {
        "context",
        "namespace",
        "url",
        "agent",
        *(f"template.{name}" for name in options.TEMPLATE_FIELDS.tree),
    }


def test_file_of_the_page_refuses_a_load_balancer_by_an_admin_of_one_pool(db: None) -> None:
    pool = create_pool({"name": "evil", "provider": AWS, "slots": PORTS, "members": {"max": 3}})
    client = Client()
    client.force_login(person("ana", "admin", pool=pool))
    text = json.dumps(
        {
            "kind": "Pool",
            "name": "evil",
            "provider": AWS,
            "slots": PORTS,
            "members": {"max": 3, "list": [{"name": "a", "external_id": ARN.format("shop")}]},
        }
    )
    answer = client.post("/pools/evil/edit/", {"mode": "file", "revision": "1", "file": text})
    assert answer.status_code == 403 and b"in all pools" in answer.content
    assert not Member.objects.exists()


def test_form_and_file_refuse_provider_changes_by_an_admin_of_one_pool(db: None) -> None:
    pool = empty_pool(PODS)
    client = Client()
    client.force_login(person("ana", "admin", pool=pool))
    moved = copy.deepcopy(PODS) | {"namespace": "kube-system"}
    fields = {
        "provider.kubernetes.namespace": "kube-system",
        "provider.kubernetes.context": "prod",
        "provider.kubernetes.url": PODS["url"],
    }
    fields |= {
        "provider.kubernetes.template.image": PODS["template"]["image"],
        "provider.kubernetes.template.service_account": "agent",
        "revision": "1",
    }
    for given in (
        {
            "mode": "file",
            "revision": "1",
            "file": "kind: Pool\nname: env\nslots: [any]\nprovider: local\nmembers: {max: 3}",
        },
        {
            "mode": "file",
            "revision": "1",
            "file": f"kind: Pool\nname: env\nslots: [any]\nprovider: {moved}\nmembers: {{max: 3}}",
        },
        {"form": "tasks", "tasks": "any", "members.max": "3", **fields},
    ):
        answer = client.post("/pools/env/edit/", given)
        assert answer.status_code == 403 and b"in all pools" in answer.content, (
            answer.content.decode()[-3000:]
        )
    pool.refresh_from_db()
    assert pool.revision == 1


# -- providers that may be used --------------------------------------------------------------------


def test_disallowed_provider_is_refused_by_its_field(caller: Callers, settings: Any) -> None:
    settings.BERTH_ALLOWED_PROVIDERS = ["static", "agents"]
    answer = caller("superuser").post(
        "pools/", {"name": "env", "provider": "local", "slots": ["any"]}
    )
    fault = answer.body["errors"][0]
    assert (answer.status, fault["field"]) == (400, "provider")
    assert (
        "local" in fault["message"]
        and "BERTH_ALLOWED_PROVIDERS" in fault["way_out"]
        and "agents, static" in fault["way_out"]
    )
    pool = empty_pool()
    assert (
        change(caller("superuser"), pool, "PATCH", {"provider": {"kind": "local"}}).body["errors"][
            0
        ]["field"]
        == "provider.kind"
    )
    assert [
        fault.field for fault in validate_pool("other", {"provider": "local", "slots": ["any"]})
    ] == ["provider"]


def test_missing_provider_list_allows_all_providers(caller: Callers, settings: Any) -> None:
    settings.BERTH_ALLOWED_PROVIDERS = []
    assert (
        caller("superuser")
        .post("pools/", {"name": "env", "provider": "local", "slots": ["any"]})
        .status
        == 201
    )


def test_pool_with_a_disallowed_provider_accepts_no_new_members(
    caller: Callers, settings: Any
) -> None:
    pool = make_pool("env", members=("a",))
    settings.BERTH_ALLOWED_PROVIDERS = ["agents"]
    root = caller("superuser")
    answer = root.post("pools/env/members/", {"name": "b"})
    assert (answer.status, answer.body["code"]) == (422, "provider_not_allowed"), answer.body
    assert "BERTH_ALLOWED_PROVIDERS" in answer.body["way_out"]
    with pytest.raises(Refused):
        add_members(pool_id=pool.pk, declared=["b"])
    assert change(root, pool, "PATCH", {"members": {"list": ["a", "b"]}}).status == 422
    assert change(root, pool, "PATCH", {"description": "still shown and changed"}).status == 200
    shown = root.get("pools/env/").body
    assert (shown["trouble"]["code"], shown["members"]["total"]) == ("provider_not_allowed", 1)
    assert "static" in shown["trouble"]["detail"]
    assert [finding.subject for finding in find_providers_not_allowed()] == ["pool env"]
    client = Client()
    client.force_login(chief("root"))
    assert b"BERTH_ALLOWED_PROVIDERS" in client.get("/pools/env/").content
    assert any(
        told.lead == "env:" and "BERTH_ALLOWED_PROVIDERS" in told.text
        for told in list_problems(None)
    )


def test_scaler_creates_no_members_with_a_disallowed_provider(db: None, settings: Any) -> None:
    pool = empty_pool("local", scaling="on_demand", members={"min": 2, "max": 3})
    Pool.objects.filter(pk=pool.pk).update(state="active")
    assert dry_run("env")[1].delta > 0
    settings.BERTH_ALLOWED_PROVIDERS = ["agents"]
    decision = dry_run("env")[1]
    assert (decision.delta, decision.verdict) == (
        0,
        "paused",
    ) and "BERTH_ALLOWED_PROVIDERS" in decision.reason
    assert not Member.objects.exists()


def test_doctor_names_an_allowed_provider_that_does_not_exist(db: None, settings: Any) -> None:
    settings.BERTH_ALLOWED_PROVIDERS = ["static", "kubernets"]
    assert [finding.subject for finding in find_providers_not_allowed()] == [
        "BERTH_ALLOWED_PROVIDERS"
    ]


def test_form_offers_only_allowed_providers(db: None, settings: Any) -> None:
    settings.BERTH_ALLOWED_PROVIDERS = ["static", "agents"]
    client = Client()
    client.force_login(chief("root"))
    text = client.get("/pools/new/").content.decode()
    assert 'value="agents"' in text and 'value="local"' not in text
