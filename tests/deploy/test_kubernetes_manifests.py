"""deploy/kubernetes on a real API server: every document is valid, and its accounts have exactly
the rights that the life of a pod needs.
"""

import json
import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
import yaml
from kubernetes.config import incluster_config

from pools.providers.kubernetes.names import installation_of, select_all
from project.kernel.kubernetes import client, credentials
from tests.kubernetes_cluster.clusters import KubeWorld, Thing
from tests.kubernetes_cluster.namespace import Space
from tests.pools.providers.kubernetes.test_provider import Bench

DEPLOY = Path(__file__).resolve().parents[2] / "deploy/kubernetes"
AGENT = DEPLOY.parent / "kustomize-agent"
DOCS = DEPLOY.parent.parent / "docs/kubernetes.md"
HOME = "berth"  # the namespace that the binding names
RBAC = "/apis/rbac.authorization.k8s.io/v1"
# kind: where it is told of, what it is called there
KINDS = {
    "Namespace": ("/api/v1", "namespaces"),
    "ServiceAccount": ("/api/v1", "serviceaccounts"),
    "ConfigMap": ("/api/v1", "configmaps"),
    "Service": ("/api/v1", "services"),
    "PersistentVolumeClaim": ("/api/v1", "persistentvolumeclaims"),
    "Deployment": ("/apis/apps/v1", "deployments"),
    "StatefulSet": ("/apis/apps/v1", "statefulsets"),
    "PodDisruptionBudget": ("/apis/policy/v1", "poddisruptionbudgets"),
    "NetworkPolicy": ("/apis/networking.k8s.io/v1", "networkpolicies"),
    "Role": (RBAC, "roles"),
    "RoleBinding": (RBAC, "rolebindings"),
}
ACCOUNTS = ("from elsewhere", "in the cluster")


def read(file: Path) -> list[Thing]:
    return [each for each in yaml.safe_load_all(file.read_text()) if each]


def apply(world: KubeWorld, document: Thing, namespace: str, *, is_dry: bool = False) -> Thing:
    """As `kubectl apply --server-side --validate=strict`."""
    group, plural = KINDS[document["kind"]]
    where = "" if plural == "namespaces" else f"/namespaces/{namespace}"
    query = "fieldManager=test&fieldValidation=Strict" + ("&dryRun=All" if is_dry else "")
    path = f"{group}{where}/{plural}/{document['metadata']['name']}?{query}"
    return dict(world.must("PATCH", path, document, content="application/apply-patch+yaml"))


def render(folder: Path) -> list[Thing]:
    """What `kubectl kustomize` makes of it, as far as these folders use it. A word that is not
    known here is an error.
    """
    (told,) = read(folder / "kustomization.yaml")
    known = {
        "apiVersion",
        "kind",
        "namespace",
        "labels",
        "resources",
        "configMapGenerator",
        "images",
        "patches",
    }
    assert set(told) <= known, set(told) - known
    found: list[Thing] = []
    for name in told["resources"]:
        place = folder / name
        found += render(place) if place.is_dir() else read(place)
    for each in told.get("configMapGenerator", ()):
        data = dict(literal.split("=", 1) for literal in each["literals"])
        found.append(
            {
                "apiVersion": "v1",
                "kind": "ConfigMap",
                "metadata": {"name": each["name"]},
                "data": data,
            }
        )
    for patch in told.get("patches", ()):
        aims = [each for each in found if each["kind"] == patch["target"]["kind"]]
        assert aims, patch
        for document in aims:
            for change in yaml.safe_load(patch["patch"]):
                put(document, change)
    return found


def put(document: Thing, change: Thing) -> None:
    *way, last = change["path"].strip("/").split("/")
    place = document
    for name in way:
        place = place[name]
    assert change["op"] in ("add", "replace")
    assert change["op"] == "add" or last in place, change
    place[last] = change["value"]


@pytest.fixture
def home(real_kube: KubeWorld) -> Iterator[Space]:
    """The namespace of Berth itself, with its account."""
    (namespace,) = read(DEPLOY.parent / "kustomize/namespace.yaml")
    assert namespace["metadata"]["name"] == HOME
    apply(real_kube, namespace, "")
    home = Space(real_kube, HOME)
    for document in read(DEPLOY / "account.yaml"):
        apply(real_kube, document, HOME)
    yield home
    home.remove()


@pytest.fixture
def elsewhere(real_kube: KubeWorld) -> Iterator[Space]:
    """A namespace that Berth does not own, with a pod."""
    space = Space(real_kube).make()
    space.create_pod("theirs")
    yield space
    space.remove()


@pytest.fixture
def site(request: pytest.FixtureRequest, settings: Any, home: Space) -> Iterator[Bench]:
    """A namespace for pods with role.yaml in it. Its provider comes as the administrator,
    before `sign_in`.
    """
    bench = Bench("real_kube")
    with bench.world_of_its_own(request, settings):
        for document in read(DEPLOY / "role.yaml"):
            apply(bench.space.world, document, bench.space.name)
        yield bench
        client.forget()


Entrance = Callable[[str], str]


@pytest.fixture
def sign_in(site: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Entrance:
    """As one of the two accounts; answers its token."""

    def sign_in(who: str) -> str:
        world = site.space.world
        account, namespace = (
            ("berth-agents", site.space.name) if who == ACCOUNTS[0] else ("berth", HOME)
        )
        body = {
            "apiVersion": "authentication.k8s.io/v1",
            "kind": "TokenRequest",
            "spec": {"expirationSeconds": 3600},
        }
        token = str(
            world.must(
                "POST", f"/api/v1/namespaces/{namespace}/serviceaccounts/{account}/token", body
            )["status"]["token"]
        )
        site.space.until(
            lambda: world.ask("GET", f"{site.space.path}/pods", user=token)[0] == 200,
            "the role does not open the pods",
        )
        if who == ACCOUNTS[0]:
            enter_from_elsewhere(world, token, tmp_path, monkeypatch)
            site.good_options = {**site.good_options, "context": "shipped"}
        else:
            enter_in_cluster(world, token, tmp_path, monkeypatch)
            del site.good_options["context"]  # "pools name no context"
        client.forget()
        return token

    return sign_in


def enter_from_elsewhere(
    world: KubeWorld, token: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    content = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "shipped",
        "clusters": [
            {"name": "c", "cluster": {"server": world.url, "certificate-authority": world.ca}}
        ],
        "users": [{"name": "shipped", "user": {"token": token}}],
        "contexts": [{"name": "shipped", "context": {"cluster": "c", "user": "shipped"}}],
    }
    (folder / "kubeconfig").write_text(json.dumps(content))
    monkeypatch.setenv("BERTH_KUBECONFIG", str(folder / "kubeconfig"))


def enter_in_cluster(
    world: KubeWorld, token: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    at = urlsplit(world.url)
    (folder / "token").write_text(token)
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", str(at.hostname))
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", str(at.port))
    monkeypatch.setattr(incluster_config, "SERVICE_TOKEN_FILENAME", str(folder / "token"))
    monkeypatch.setattr(incluster_config, "SERVICE_CERT_FILENAME", world.ca)
    monkeypatch.setattr(credentials, "OWN_NAMESPACE", folder / "namespace")


# -- it is taken -----------------------------------------------------------------------------------


def test_every_document_is_accepted_by_the_api_server(real_kube: KubeWorld, home: Space) -> None:
    documents = render(DEPLOY) + read(DEPLOY / "role.yaml") + render(AGENT)
    for document in documents:
        apply(real_kube, document, HOME, is_dry=True)
    kinds = {document["kind"] for document in documents}
    assert kinds == set(KINDS), "each of them was seen"
    files = {file.name for file in DEPLOY.iterdir()}
    assert files == {"account.yaml", "kustomization.yaml", "role.yaml"}, (
        "a new file is applied here, too"
    )


def test_unknown_field_is_refused_by_the_api_server(real_kube: KubeWorld, home: Space) -> None:
    """What the test above looks for, seen: its eyes are open."""
    (account,) = read(DEPLOY / "account.yaml")
    with pytest.raises(AssertionError, match="automountServiceToken"):
        apply(real_kube, {**account, "automountServiceToken": False}, HOME, is_dry=True)


def test_every_deployment_uses_the_account_of_the_role_binding(home: Space) -> None:
    deployments = {
        each["metadata"]["name"]: each["spec"]["template"]["spec"]
        for each in render(DEPLOY)
        if each["kind"] == "Deployment"
    }
    assert set(deployments) == {"web", "worker", "controllers"}
    signs_in = {
        name: (spec["serviceAccountName"], spec["automountServiceAccountToken"])
        for name, spec in deployments.items()
    }
    assert set(signs_in.values()) == {("berth", True)}, signs_in
    (binding,) = [each for each in read(DEPLOY / "role.yaml") if each["kind"] == "RoleBinding"]
    assert {"kind": "ServiceAccount", "name": "berth", "namespace": HOME} in binding["subjects"]


# -- it is enough ----------------------------------------------------------------------------------


@pytest.mark.parametrize("who", ACCOUNTS)
def test_service_accounts_can_do_the_whole_life_of_a_pod(
    site: Bench, sign_in: Entrance, who: str
) -> None:
    sign_in(who)
    provider = site.provider()
    assert provider.check(site.pool()) == [], "rights, and a dry run of Secret and pod"
    creating = replace(site.member("creating"), slots=())
    assert provider.needs_token(site.pool(creating), creating)
    api = client.api_for(site.good_options)
    assert api.check_namespace() == site.space.world.must("GET", site.space.path)["metadata"]["uid"]
    selector = select_all(installation_of(site.pool()))
    stream = api.watch_pods(selector, api.find_version(selector), 30, 40)
    try:
        name = site.create()
        assert next(iter(stream))["object"]["metadata"]["name"] == name
    finally:
        stream.close()
    site.space.run(name)
    member = site.member("ready")
    assert site.see(member).is_ready
    site.sync(replace(member, token="berthm_1_another"))
    assert site.ours("secrets") == [name]
    stray = site.create(2)
    provider.remove_strays(site.pool(member), [2])
    assert site.ours() == site.ours("secrets") == [name], f"{stray} goes, with its Secret"
    going = replace(member, state="deleting")
    assert not site.sync(going).is_gone
    site.let_go()
    assert site.sync(going).is_gone
    assert site.ours() == site.ours("secrets") == []


# -- and it is not more ----------------------------------------------------------------------------


def documented() -> set[tuple[str, str]]:
    """The sentence of docs/kubernetes.md: "Pods: get, list; Secrets: get; its own
    namespace: get."
    """
    text = " ".join(DOCS.read_text().split())
    (pods, secrets, namespaces) = re.search(
        r"Pods: ([\w, ]+); Secrets: ([\w, ]+); its own namespace: ([\w, ]+)\.", text
    ).groups()  # type: ignore[union-attr]
    told = {"pods": pods, "secrets": secrets, "namespaces": namespaces}
    return {
        (verb.strip(), resource) for resource, verbs in told.items() for verb in verbs.split(",")
    }


def rules_of(world: KubeWorld, namespace: str, user: str) -> set[tuple[str, str]]:
    """All rights of the user there, without the reviews of its own rights that each user has."""
    body = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SelfSubjectRulesReview",
        "spec": {"namespace": namespace},
    }
    status = world.must(
        "POST", "/apis/authorization.k8s.io/v1/selfsubjectrulesreviews", body, user=user
    )["status"]
    assert not status["incomplete"], status
    found = {
        (verb, resource)
        for rule in status["resourceRules"]
        for verb in rule["verbs"]
        for resource in rule["resources"]
    }
    return {(verb, resource) for verb, resource in found if not resource.startswith("selfsubject")}


FORBIDDEN: list[tuple[str, str, Any]] = [
    ("GET", "/api/v1/pods", None),
    ("GET", "/api/v1/nodes", None),
    ("GET", "/api/v1/namespaces", None),
    ("GET", "/api/v1/namespaces/{elsewhere}", None),
    ("GET", "/api/v1/namespaces/{elsewhere}/pods", None),
    ("GET", "/api/v1/namespaces/{elsewhere}/pods/theirs", None),
    (
        "POST",
        "/api/v1/namespaces/{elsewhere}/pods",
        {"metadata": {"name": "x"}, "spec": {"containers": [{"name": "c", "image": "x"}]}},
    ),
    ("DELETE", "/api/v1/namespaces/{elsewhere}/pods/theirs", None),
    ("GET", "/api/v1/namespaces/{here}/secrets", None),
    ("DELETE", "/api/v1/namespaces/{here}/pods", None),
    ("POST", "/api/v1/namespaces/{here}/pods/theirs/exec?command=id", None),
    ("GET", "/api/v1/namespaces/{here}/pods/theirs/log", None),
    ("DELETE", "/api/v1/namespaces/{here}", None),
    ("POST", RBAC + "/namespaces/{here}/roles", {"metadata": {"name": "x"}, "rules": []}),
    ("POST", "/api/v1/namespaces/{here}/serviceaccounts/berth-agents/token", {"spec": {}}),
]


@pytest.mark.parametrize("who", ACCOUNTS)
def test_service_accounts_have_exactly_the_documented_rights(
    site: Bench, sign_in: Entrance, elsewhere: Space, who: str
) -> None:
    world, token = site.space.world, sign_in(who)
    assert rules_of(world, site.space.name, token) == documented()
    for namespace in (elsewhere.name, "default", HOME, "kube-system"):
        assert rules_of(world, namespace, token) == set(), namespace
    for method, path, body in FORBIDDEN:
        where = path.format(elsewhere=elsewhere.name, here=site.space.name)
        assert world.ask(method, where, body, user=token)[0] == 403, (method, where)
    assert elsewhere.names() == ["theirs"]
