"""The pod and the Secret of a member, with least rights: a cluster token only for a named service
account, a read-only root with two empty folders, no user root, no capability. Pure.
"""

import base64
import hashlib
import json
from typing import Any

from pools.config.spec import turns_agents_off
from pools.providers.base import MemberSnapshot, PoolSnapshot
from pools.providers.kubernetes.names import (
    LABEL_PREFIX,
    MEMBER_NAME,
    POOL_NAME,
    labels_of,
    pod_name,
)
from pools.providers.kubernetes.options import DEFAULT_GRACE, DEFAULT_USER
from project.kernel.kubernetes.objects import Object, name_of, uid_of

CONTAINER = "agent"
# In the pod.
STATE, TOKENS, TEMPORARY, WORK = "/state", "/run/secrets/berth", "/tmp", "/var/tmp"  # noqa: S108
TOKEN_KEY = "token"  # noqa: S105  (the name of a file)
# Options of the template, and the fields of a pod that have the same values.
OF_POD = {
    "service_account": "serviceAccountName",
    "node_selector": "nodeSelector",
    "tolerations": "tolerations",
}
# Capabilities with which an agent of root gives each task a user of its own.
ROOT_NEEDS = ["CHOWN", "DAC_OVERRIDE", "FOWNER", "KILL", "SETGID", "SETUID"]
# Downloads the agent from the server and runs it, in any image with python3. It waits for a server
# that is away. It is process 1, so it needs a handler, else the kernel ignores TERM. The agent then
# splits into an init, which stays process 1, and the agent proper.
FETCH = """\
import os, runpy, shutil, signal, sys, time, urllib.request
signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
url = os.environ["BERTH_URL"].rstrip("/") + "/agent/berth-agent.pyz"
file = os.environ["BERTH_AGENT_STATE"] + ".pyz"
wait = 1
while True:
    try:
        with urllib.request.urlopen(url, timeout=30) as answer, open(file + ".part", "wb") as part:
            shutil.copyfileobj(answer, part)
        os.replace(file + ".part", file)
        break
    except OSError as error:
        print("no agent from", url + ":", error, flush=True)
        time.sleep(wait)
        wait = min(wait * 2, 30)
sys.argv = [file]
runpy.run_path(file, run_name="__main__")
"""


def pod_manifest(pool: PoolSnapshot, member: MemberSnapshot, namespace: str, url: str) -> Object:
    template = pool.options["template"]
    spec: dict[str, Any] = {
        # Berth starts a new incarnation, with a token of its own, after the pod has ended.
        "restartPolicy": "Never",
        "terminationGracePeriodSeconds": template.get("grace", DEFAULT_GRACE),
        "automountServiceAccountToken": bool(template.get("service_account")),
        "enableServiceLinks": False,
        "securityContext": _pod_security(template),
        "containers": [_container(template)],
        "volumes": [{"name": "state", "emptyDir": {}}, {"name": "tmp", "emptyDir": {}}],
    }
    if not turns_agents_off(pool.options):
        _add_agent(spec, pod_name(pool, member), template, url)
    for option, name in OF_POD.items():
        if template.get(option):
            spec[name] = template[option]
    if template.get("image_pull_secrets"):
        spec["imagePullSecrets"] = [{"name": name} for name in template["image_pull_secrets"]]
    about = {
        POOL_NAME: pool.name,
        MEMBER_NAME: member.name,
        f"{LABEL_PREFIX}template": template_digest(pool),
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": pod_name(pool, member),
            "namespace": namespace,
            "labels": {**template.get("labels", {}), **labels_of(pool, member)},
            "annotations": {**template.get("annotations", {}), **about},
        },
        "spec": spec,
    }


def secret_manifest(
    pool: PoolSnapshot, member: MemberSnapshot, namespace: str, owner: Object | None = None
) -> Object:
    """The token of the member's incarnation. The pod becomes its owner once it exists."""
    metadata: dict[str, object] = {
        "name": pod_name(pool, member),
        "namespace": namespace,
        "labels": labels_of(pool, member),
        "annotations": {POOL_NAME: pool.name, MEMBER_NAME: member.name},
    }
    if owner is not None:
        metadata["ownerReferences"] = [owner_reference(owner)]
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": metadata,
        "type": "Opaque",
        "data": token_data(member.token),
    }


def token_data(token: str) -> dict[str, str]:
    return {TOKEN_KEY: base64.b64encode(f"{token}\n".encode()).decode()}


def owner_reference(pod: Object) -> Object:
    return {"apiVersion": "v1", "kind": "Pod", "name": name_of(pod), "uid": uid_of(pod)}


def template_digest(pool: PoolSnapshot) -> str:
    text = json.dumps(pool.options.get("template", {}), sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _pod_security(template: Object) -> Object:
    user = template.get("user", DEFAULT_USER)
    return {
        "runAsNonRoot": user != 0,
        "runAsUser": user,
        "runAsGroup": user,
        "fsGroup": user,  # the agent must read its token
        "seccompProfile": {"type": "RuntimeDefault"},
    }


def _add_agent(spec: dict[str, Any], secret: str, template: Object, url: str) -> None:
    """Add the token and settings of the agent, and for root the means to isolate tasks."""
    (container,) = spec["containers"]
    spec["volumes"].append(
        {"name": "token", "secret": {"secretName": secret, "defaultMode": 0o440}}
    )
    # The folder, not the file: the kubelet updates a new token only in a mounted folder.
    container["volumeMounts"].append({"name": "token", "mountPath": TOKENS, "readOnly": True})
    # The template can't set variables with these names: options.py refuses BERTH_*.
    settings = {
        "BERTH_URL": url,
        "BERTH_AGENT_TOKEN_FILE": f"{TOKENS}/{TOKEN_KEY}",
        "BERTH_AGENT_STATE": f"{STATE}/agent",
        "BERTH_AGENT_END_WITHIN": str(template.get("grace", DEFAULT_GRACE)),
    }
    container["env"] += [{"name": name, "value": value} for name, value in settings.items()]
    if not template.get("command") and not template.get("args"):
        container["command"] = ["python3", "-c", FETCH]
    if template.get("user", DEFAULT_USER) == 0:
        container["securityContext"]["capabilities"]["add"] = ROOT_NEEDS
        # The folders of tasks: the users of tasks can't enter the state of the agent.
        spec["volumes"].append({"name": "work", "emptyDir": {}})
        container["volumeMounts"].append({"name": "work", "mountPath": WORK})


def _container(template: Object) -> Object:
    env = {"HOME": STATE, **template.get("env", {})}
    container: dict[str, Any] = {
        "name": CONTAINER,
        "image": template["image"],
        "env": [{"name": name, "value": value} for name, value in env.items()],
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": not template.get("writable_root", False),
            "capabilities": {"drop": ["ALL"]},
        },
        "volumeMounts": [
            {"name": "state", "mountPath": STATE},
            {"name": "tmp", "mountPath": TEMPORARY},
        ],
    }
    for name in ("command", "args", "resources"):
        if template.get(name):
            container[name] = template[name]
    return container
