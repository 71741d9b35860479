"""The kustomize folders: addresses fit each other, and every long-running process has probes and
a disruption budget.
"""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
import yaml

from tests.end_to_end.stack import COMPILED

DEPLOY = Path(__file__).resolve().parents[2] / "deploy"
PROCESSES = ("web", "controllers", "worker")
Thing = dict[str, Any]

ASK_AS_AN_AGENT = """
import django, sys
django.setup()
from django.test import Client
url = sys.argv[1]
from urllib.parse import urlsplit
at = urlsplit(url)
answer = Client().post("/api/v1/agent/hello/", headers={"host": at.netloc, "x-forwarded-proto": at.scheme})
print(answer.status_code)
"""  # noqa: E501


def read(folder: str) -> list[Thing]:
    (told,) = yaml.safe_load_all((DEPLOY / folder / "kustomization.yaml").read_text())
    return [
        each
        for name in told["resources"]
        for each in yaml.safe_load_all((DEPLOY / folder / name).read_text())
        if each
    ]


def literals(folder: str) -> dict[str, str]:
    (told,) = yaml.safe_load_all((DEPLOY / folder / "kustomization.yaml").read_text())
    return dict(
        literal.split("=", 1) for each in told["configMapGenerator"] for literal in each["literals"]
    )


def pods(folder: str) -> dict[str, Thing]:
    return {
        each["metadata"]["name"]: each["spec"]["template"]["spec"]
        for each in read(folder)
        if each["kind"] in ("Deployment", "StatefulSet")
    }


def ask(url: str) -> str:
    """The status that production answers to an agent without a token, with the settings that the
    folder deploys.
    """
    environment = {
        "PATH": os.environ["PATH"], "DJANGO_SETTINGS_MODULE": "project.settings.production",
        "SECRET_KEY": "x" * 50, "BERTH_HOME": os.environ["BERTH_HOME"],
        "DATABASE_URL": os.environ["DATABASE_URL"], "REDIS_URL": os.environ["REDIS_URL"],
        "PYTHONPYCACHEPREFIX": COMPILED, **literals("kustomize"),
    }  # fmt: skip
    done = subprocess.run(
        [sys.executable, "-c", ASK_AS_AN_AGENT, url],
        cwd=DEPLOY.parent,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_agent_address_is_served_by_berth() -> None:
    url = literals("kustomize-agent")["BERTH_URL"]
    assert urlsplit(url).scheme == "https", "a token is never sent in the clear"
    assert ask(url) == "401", "asked for its token: neither redirected nor refused for its host"


@pytest.mark.parametrize(
    ("url", "status"),
    [("http://berth.example.com/", "301"), ("https://web.berth.svc:8000/", "400")],
)
def test_plain_http_and_cluster_names_are_not_served(url: str, status: str) -> None:
    assert ask(url) == status


def test_agent_token_is_mounted_as_a_folder_so_that_rotation_arrives() -> None:
    (container,) = pods("kustomize-agent")["agent-1"]["containers"]
    (mount,) = [each for each in container["volumeMounts"] if each["name"] == "token"]
    assert "subPath" not in mount
    assert literals("kustomize-agent")["BERTH_AGENT_TOKEN_FILE"] == mount["mountPath"] + "/token"
    assert {"configMapRef": {"name": "berth-agent"}} in container["envFrom"]


@pytest.mark.parametrize("name", PROCESSES)
def test_every_process_has_probes_on_a_served_port(name: str) -> None:
    (container,) = pods("kustomize")[name]["containers"]
    ports = {each["name"]: each["containerPort"] for each in container["ports"]}
    for probe in ("livenessProbe", "readinessProbe"):
        assert container[probe]["httpGet"]["port"] in ports, probe
    if name != "web":
        environment = {each["name"]: each["value"] for each in container["env"]}
        assert environment == {
            "BERTH_PROBE_PORT": str(ports["probe"]),
            "BERTH_PROBE_BIND": "0.0.0.0",
        }


def test_every_process_has_a_disruption_budget_that_leaves_one_running() -> None:
    budgets = {
        each["metadata"]["name"]: each["spec"]
        for each in read("kustomize")
        if each["kind"] == "PodDisruptionBudget"
    }
    deployments = {
        each["metadata"]["name"]: each for each in read("kustomize") if each["kind"] == "Deployment"
    }
    assert set(budgets) == set(deployments) == set(PROCESSES)
    for name, spec in budgets.items():
        assert spec["selector"] == deployments[name]["spec"]["selector"]
        assert deployments[name]["spec"]["replicas"] > spec["maxUnavailable"]


def test_ingress_is_allowed_for_web_and_metrics_only() -> None:
    policies = {
        each["metadata"]["name"]: each["spec"]
        for each in read("kustomize")
        if each["kind"] == "NetworkPolicy"
    }
    assert set(policies) == {"berth-deny-ingress", "web", "metrics"}
    assert "ingress" not in policies["berth-deny-ingress"]
    assert policies["web"]["ingress"] == [{"ports": [{"port": "http"}]}]
    (rule,) = policies["metrics"]["ingress"]
    assert rule["from"] == [
        {"namespaceSelector": {"matchLabels": {"berth.dev/metrics": "allowed"}}}
    ]
