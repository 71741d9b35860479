"""The pod and the Secret of a member: unique names, deciding labels, least rights."""

import re
from dataclasses import replace
from typing import Any

import pytest

from pools.config.parsing import Faults
from pools.providers.base import MemberSnapshot, PoolSnapshot
from pools.providers.kubernetes.manifests import (
    FETCH,
    pod_manifest,
    secret_manifest,
    template_digest,
)
from pools.providers.kubernetes.names import is_ours, labels_of, pod_name
from pools.providers.kubernetes.options import read_options

DNS_LABEL = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")
MEMBER = MemberSnapshot(5, "m1", "creating", token="berthm_5_secret")


def pool(
    name: str = "infra", number: int = 7, installation: str = "b1", **template: Any
) -> PoolSnapshot:
    faults = Faults()
    options = read_options(
        {"namespace": "agents", "template": {"image": "a:1", **template}}, "provider", faults
    )
    assert faults.found == []
    return PoolSnapshot(number, name, "kubernetes", options, installation=installation)


def spec(**template: Any) -> dict[str, Any]:
    found: dict[str, Any] = pod_manifest(
        pool(**template), MEMBER, "agents", "https://berth.example/"
    )["spec"]
    return found


@pytest.mark.parametrize(
    ("of_pool", "of_member"),
    [
        ("infra", "m1"),
        ("a.b_c", "X.y_Z"),
        ("p" * 63, "m" * 63),
        ("a" * 40, "-"),
        ("9", "0"),
        ("ü", "ß"),
    ],
    ids=["plain", "mixed", "long", "dashes", "digits", "letters"],
)
@pytest.mark.parametrize("incarnation", [1, 2, 12345])
def test_pod_names_are_valid_kubernetes_names(
    of_pool: str, of_member: str, incarnation: int
) -> None:
    name = pod_name(pool(of_pool), replace(MEMBER, name=of_member, incarnation=incarnation))
    assert DNS_LABEL.fullmatch(name), name


def test_pod_names_differ_by_pool_member_incarnation_and_installation() -> None:
    made = [
        pod_name(pool("a-b"), replace(MEMBER, name="c")),
        pod_name(pool("a", 8), replace(MEMBER, name="b-c", id=6)),
        pod_name(pool("a-b"), replace(MEMBER, name="c", incarnation=2)),
        pod_name(pool("a-b", installation="b2"), replace(MEMBER, name="c")),
        pod_name(pool("a-b"), replace(MEMBER, name="c", id=6)),
    ]
    assert len(set(made)) == len(made)
    assert made[0] == pod_name(pool("a-b"), replace(MEMBER, name="c")), "and a name is found again"


def test_pod_is_ours_only_with_all_our_labels() -> None:
    found = pod_manifest(pool(), MEMBER, "agents", "https://berth.example/")
    assert is_ours(found, pool(), MEMBER)
    assert is_ours(found, pool(), replace(MEMBER, incarnation=2))
    for other in (pool(installation="b2"), pool(number=8)):
        assert not is_ours(found, other, MEMBER)
    assert not is_ours({"metadata": {"name": "x"}}, pool(), MEMBER)


def test_template_cannot_override_our_labels_and_annotations() -> None:
    made = pod_manifest(
        pool(labels={"team": "infra"}, annotations={"a": "b"}),
        MEMBER,
        "agents",
        "https://berth.example/",
    )
    assert made["metadata"]["labels"] == {"team": "infra", **labels_of(pool(), MEMBER)}
    assert made["metadata"]["annotations"]["berth.dev/member-name"] == "m1"
    assert made["metadata"]["annotations"]["a"] == "b"


def test_pod_has_the_least_rights() -> None:
    made = spec()
    (container,) = made["containers"]
    assert made["automountServiceAccountToken"] is False
    assert "serviceAccountName" not in made
    assert made["securityContext"]["runAsNonRoot"] is True
    assert made["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    assert made["restartPolicy"] == "Never"


def test_named_service_account_is_used() -> None:
    made = spec(service_account="agent")
    assert (made["serviceAccountName"], made["automountServiceAccountToken"]) == ("agent", True)


def test_root_agent_has_only_the_capabilities_for_task_users() -> None:
    made = spec(user=0, writable_root=True)
    security = made["containers"][0]["securityContext"]
    assert made["securityContext"]["runAsNonRoot"] is False
    assert security["capabilities"]["drop"] == ["ALL"]
    assert "SYS_ADMIN" not in security["capabilities"]["add"]
    assert security["readOnlyRootFilesystem"] is False
    assert "/var/tmp" in [mount["mountPath"] for mount in made["containers"][0]["volumeMounts"]], (
        "where tasks of other users work"
    )


def test_token_is_mounted_as_a_file_that_follows_its_secret() -> None:
    made = spec()
    (container,) = made["containers"]
    mount = next(each for each in container["volumeMounts"] if each["name"] == "token")
    assert "subPath" not in mount, "what is mounted so never changes"
    volume = next(each for each in made["volumes"] if each["name"] == "token")
    assert volume["secret"] == {"secretName": pod_name(pool(), MEMBER), "defaultMode": 0o440}
    env = {each["name"]: each["value"] for each in container["env"]}
    assert env["BERTH_AGENT_TOKEN_FILE"] == f"{mount['mountPath']}/token"
    assert MEMBER.token not in str(made)


def test_secret_is_owned_by_its_pod() -> None:
    pod = {"metadata": {"name": "x", "uid": "u1"}}
    alone, owned = (
        secret_manifest(pool(), MEMBER, "agents"),
        secret_manifest(pool(), MEMBER, "agents", pod),
    )
    assert alone["metadata"]["name"] == pod_name(pool(), MEMBER)
    assert "ownerReferences" not in alone["metadata"]
    assert owned["metadata"]["ownerReferences"] == [
        {"apiVersion": "v1", "kind": "Pod", "name": "x", "uid": "u1"}
    ]


def test_own_command_is_used_or_the_agent_is_fetched() -> None:
    assert spec()["containers"][0]["command"] == ["python3", "-c", FETCH]
    own = spec(args=["--verbose"])["containers"][0]
    assert "command" not in own, "that of the image"
    assert own["args"] == ["--verbose"]
    compile(FETCH, "fetch", "exec")
    assert "$(" not in FETCH, "Kubernetes would put a variable there"


def test_changed_template_has_another_digest() -> None:
    assert template_digest(pool()) == template_digest(pool())
    assert template_digest(pool()) != template_digest(pool(grace=5))


def test_agent_knows_when_its_pod_is_killed() -> None:
    found = spec(grace=900)
    env = {each["name"]: each["value"] for each in found["containers"][0]["env"]}
    assert found["terminationGracePeriodSeconds"] == 900
    assert env["BERTH_AGENT_END_WITHIN"] == "900"
