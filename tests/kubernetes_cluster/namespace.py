"""A namespace for one test, and events of a cluster: pods are scheduled, run, evicted, deleted
and lost.
"""

import secrets
from collections.abc import Callable
from typing import Any

from tests.kubernetes_cluster.clusters import MERGE, STRATEGIC, KubeWorld, Thing
from tests.waiting import wait_until

PATIENCE = 30.0


class Space:
    def __init__(self, world: KubeWorld, name: str = "") -> None:
        self.world, self.name = world, name or f"t-{secrets.token_hex(4)}"
        self.path = f"/api/v1/namespaces/{self.name}"

    def make(self) -> "Space":
        self.world.must("POST", "/api/v1/namespaces", {"metadata": {"name": self.name}})
        return self

    def end(self) -> None:
        """Begins to go, and stays so: what removes it is a controller's work."""
        self.world.must("DELETE", f"/api/v1/namespaces/{self.name}")

    def remove(self) -> None:
        """Removes the namespace with its content, as the controllers of a whole cluster would."""
        status, _ = self.world.ask("DELETE", f"/api/v1/namespaces/{self.name}")
        for plural in ("pods", "secrets", "configmaps"):
            for thing in self.things(plural):
                if thing["metadata"].get("finalizers"):
                    self.patch(
                        plural,
                        thing["metadata"]["name"],
                        {"metadata": {"finalizers": None}},
                        content=MERGE,
                    )
            self.world.must("DELETE", f"{self.path}/{plural}?gracePeriodSeconds=0")
        if status != 404:
            body = {
                "apiVersion": "v1",
                "kind": "Namespace",
                "metadata": {"name": self.name},
                "spec": {"finalizers": []},
            }
            self.world.must("PUT", f"/api/v1/namespaces/{self.name}/finalize", body)

    # -- looking -----------------------------------------------------------------------------------
    def things(self, plural: str, selector: str = "") -> list[Thing]:
        return list(
            self.world.must("GET", f"{self.path}/{plural}?labelSelector={selector}")["items"]
        )

    def names(self, plural: str = "pods") -> list[str]:
        return [thing["metadata"]["name"] for thing in self.things(plural)]

    def pods(self) -> list[Thing]:
        return self.things("pods")

    def get(self, name: str, plural: str = "pods") -> Thing | None:
        status, answer = self.world.ask("GET", f"{self.path}/{plural}/{name}")
        assert status in (200, 404), answer
        return answer if status == 200 else None

    def pod(self, name: str) -> Thing:
        found = self.get(name)
        assert found is not None, f"no pod {name} among {self.names()}"
        return found

    def until(self, is_so: Callable[[], Any], what: str = "") -> Any:
        """The first true value of `is_so()`; an AssertionError shows the pods."""
        return wait_until(is_so, lambda: what or self.describe_pods(), patience=PATIENCE)

    def describe_pods(self) -> list[Any]:
        return [(pod["metadata"]["name"], pod["status"]) for pod in self.pods()]

    # -- doing -------------------------------------------------------------------------------------
    def create(self, plural: str, body: Thing) -> Thing:
        return dict(self.world.must("POST", f"{self.path}/{plural}", body))

    def create_pod(
        self, name: str, *, node: str = "", grace: int = 30, image: str = "x", **meta: Any
    ) -> Thing:
        spec: Thing = {
            "containers": [{"name": "c", "image": image}],
            "terminationGracePeriodSeconds": grace,
        }
        spec |= {"nodeName": node} if node else {}
        return self.create("pods", {"metadata": {"name": name, **meta}, "spec": spec})

    def patch(
        self, plural: str, name: str, change: Any, *, part: str = "", content: str = STRATEGIC
    ) -> Thing:
        path = f"{self.path}/{plural}/{name}" + (f"/{part}" if part else "")
        return dict(self.world.must("PATCH", path, change, content=content))

    def bind(self, name: str, node: str = "n1") -> None:
        body = {
            "apiVersion": "v1",
            "kind": "Binding",
            "metadata": {"name": name},
            "target": {"kind": "Node", "name": node},
        }
        self.world.must("POST", f"{self.path}/pods/{name}/binding", body)

    def set_phase(self, name: str, phase: str, **status: Any) -> Thing:
        return self.patch("pods", name, {"status": {"phase": phase, **status}}, part="status")

    def run(self, name: str, ip: str = "10.1.2.3", node: str = "n1") -> Thing:
        """As scheduler and kubelet do it with a pod that is well."""
        pod = self.pod(name)
        if not pod["spec"].get("nodeName"):
            self.bind(name, node)
        container = {
            "name": pod["spec"]["containers"][0]["name"],
            "ready": True,
            "started": True,
            "restartCount": 0,
            "image": "x",
            "imageID": "",
        }
        container["state"] = {"running": {"startedAt": "2026-01-01T00:00:00Z"}}
        conditions = [
            {"type": kind, "status": "True"} for kind in ("Initialized", "ContainersReady", "Ready")
        ]
        return self.set_phase(
            name, "Running", podIP=ip, conditions=conditions, containerStatuses=[container]
        )

    def finish(self, name: str, code: int = 1, reason: str = "Error") -> Thing:
        """Marks a pod whose container has ended by itself."""
        pod = self.pod(name)
        ended = {"terminated": {"exitCode": code, "reason": reason if code else "Completed"}}
        container = {
            "name": pod["spec"]["containers"][0]["name"],
            "ready": False,
            "restartCount": 0,
            "image": "x",
            "imageID": "",
            "state": ended,
        }
        conditions = [
            {"type": kind, "status": "False", "reason": "PodFailed" if code else "PodCompleted"}
            for kind in ("ContainersReady", "Ready")
        ]
        return self.set_phase(
            name,
            "Failed" if code else "Succeeded",
            conditions=conditions,
            containerStatuses=[container],
        )

    def evict(self, name: str) -> int:
        """As `kubectl drain` does: asked of the server, which begins to delete it."""
        body = {
            "apiVersion": "policy/v1",
            "kind": "Eviction",
            "metadata": {"name": name, "namespace": self.name},
        }
        status, _ = self.world.ask("POST", f"{self.path}/pods/{name}/eviction", body)
        return status

    def press_out(self, name: str) -> Thing:
        """As a kubelet whose node runs out of a resource: the pod fails, and stays as a record."""
        return self.set_phase(
            name, "Failed", reason="Evicted", message="The node was low on resource: memory."
        )

    def lose_node(self, name: str) -> None:
        """The node of a pod is silent for long: the pod is marked and its deletion begun, and no
        kubelet confirms it.
        """
        unready = {"type": "Ready", "status": "False", "reason": "NodeNotReady"}
        target = {"type": "DisruptionTarget", "status": "True", "reason": "DeletionByTaintManager"}
        self.patch(
            "pods",
            name,
            {"status": {"reason": "NodeLost", "conditions": [unready, target]}},
            part="status",
        )
        self.delete(name)

    def delete(
        self, name: str, *, grace: int | None = None, plural: str = "pods", uid: str = ""
    ) -> int:
        options: Thing = {
            "apiVersion": "v1",
            "kind": "DeleteOptions",
            **({"preconditions": {"uid": uid}} if uid else {}),
        }
        options |= {} if grace is None else {"gracePeriodSeconds": grace}
        status, _ = self.world.ask("DELETE", f"{self.path}/{plural}/{name}", options)
        return status

    def confirm_deletion(self, name: str) -> int:
        """As a kubelet does it, once the pod's processes have ended."""
        return self.delete(name, grace=0)

    # -- rights ------------------------------------------------------------------------------------
    def grant(self, user: str, *rules: Thing) -> None:
        """The user gets exactly these rights in this namespace."""
        role = f"r-{user}"
        path = f"/apis/rbac.authorization.k8s.io/v1/namespaces/{self.name}"
        if (
            self.world.ask("PATCH", f"{path}/roles/{role}", {"rules": list(rules)}, content=MERGE)[
                0
            ]
            == 200
        ):
            return
        self.world.must("POST", f"{path}/roles", {"metadata": {"name": role}, "rules": list(rules)})
        reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": role}
        subjects = [{"kind": "User", "apiGroup": "rbac.authorization.k8s.io", "name": user}]
        self.world.must(
            "POST",
            f"{path}/rolebindings",
            {"metadata": {"name": role}, "roleRef": reference, "subjects": subjects},
        )
