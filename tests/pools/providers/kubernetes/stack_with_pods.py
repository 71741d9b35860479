"""A whole Berth under `up` with Kubernetes pools in their own namespace, and a kubelet that runs
the pods as processes.
"""

import json
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

from project.kernel.embedded.process import free_port
from tests.end_to_end.stack import Stack
from tests.kubernetes_cluster.clusters import KubeWorld
from tests.kubernetes_cluster.kubelet import Kubelet
from tests.kubernetes_cluster.namespace import Space
from tests.waiting import PATIENCE

POOL = """
kind: Pool
name: {name}
provider:
  kind: kubernetes
  context: gated
  namespace: {namespace}
  template: {{image: registry.example/agent:1, grace: {grace}}}
slots: [any, plan]
members: {{min: 0, max: 2}}
scaling: {{policy: on_demand, idle_for: 1s, cooldown: {{up: 0s, down: 0s}}}}
liveness: {{heartbeat: 30s, lost: 1m}}
task: {{stop_timeout: 30s, env: {{HELLO_TARGET: {target}}}}}
"""


class Standing:
    def __init__(
        self,
        world: KubeWorld,
        folder: Path,
        target: Path,
        *,
        pools: tuple[str, ...] = ("lab",),
        grace: str = "90s",
        apart: bool = False,
    ) -> None:
        self.world, self.target = world, target / world.name
        self.target.mkdir(mode=0o777)
        self.target.chmod(0o777)
        self.space = Space(world).make()
        self.kubelet = Kubelet(self.space)
        self.kubelet.__enter__()
        port = free_port()
        environment = {
            "BERTH_KUBECONFIG": str(world.kubeconfig),
            "BERTH_APART": "1" if apart else "0",
            "BERTH_SPARE": "0",
            "BERTH_AGENT_URL": f"http://127.0.0.1:{port}",
        }
        self.stack = Stack(folder / "state", port, **environment).start(180)
        text = [
            POOL.format(name=name, namespace=self.space.name, grace=grace, target=self.target)
            for name in pools
        ]
        (folder / "pools.yaml").write_text("---".join(text))
        done = self.stack.manage("apply", "-f", str(folder / "pools.yaml"))
        assert done.returncode == 0, done.stderr + done.stdout
        made = self.stack.manage("token", "create", "admin", "kube")
        assert made.returncode == 0, made.stderr
        self.token = made.stdout.strip()

    def close(self) -> None:
        assert self.stack.process is not None
        self.world.heal()
        if self.stack.process.poll() is None:
            self.stack.stop()
        self.kubelet.__exit__()
        self.space.remove()

    # -- asking ------------------------------------------------------------------------------------
    def call(self, method: str, path: str, body: Any = None) -> Any:
        headers = {"Authorization": f"Bearer {self.token}", "Content-Type": "application/json"}
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(
            f"http://127.0.0.1:{self.stack.port}/api/v1/{path}", data, headers, method=method
        )
        try:
            with urllib.request.urlopen(request, timeout=90) as answer:
                return json.load(answer)
        except urllib.error.HTTPError as error:
            raise AssertionError((method, path, error.code, error.read().decode())) from error

    def plan(self, pool: str, workspace: str, command: str) -> int:
        run = {"executor": "command", "commands": {"plan": command}}
        return int(
            self.call(
                "POST",
                "claims/",
                {"pool": pool, "task": "plan", "workspace": workspace, "run": run},
            )["id"]
        )

    def rows(self, query: str) -> list[tuple[Any, ...]]:
        return self.stack.execute(query)

    def wait_rows(
        self, query: str, wanted: Any, patience: float = PATIENCE, *, within: float | None = None
    ) -> None:
        self.stack.wait_rows(query, lambda rows: rows == wanted, patience, self.tell, within=within)

    def wait_ended(
        self, claims: list[int], patience: float = PATIENCE, *, within: float | None = None
    ) -> None:
        query = (
            f"select count(*) from claims_claim where id = any(array{claims}) and state = 'ended'"
        )
        self.wait_rows(query, [(len(claims),)], patience, within=within)

    def wait_empty(self, patience: float = PATIENCE) -> None:
        """No member is left, in the rows and outside."""
        self.wait_rows("select count(*) from pools_member where state <> 'gone'", [(0,)], patience)
        assert self.space.names() == self.space.names("secrets") == []
        self.space.until(lambda: not self.kubelet.running)

    def check(self) -> None:
        report = self.stack.manage("doctor", "--json")
        assert report.returncode == 0, report.stdout + report.stderr

    def tell(self) -> str:
        """Everything that might say why."""
        tables = (
            "pools_member",
            "kernel_operation",
            "pools_decision",
            "claims_claim",
            "claims_run",
        )
        lines = [
            str(self.rows(f"select row_to_json(t) from {table} t order by id desc limit 4"))
            for table in tables
        ]
        pods = [(pod["metadata"], pod["status"].get("phase")) for pod in self.space.pods()]
        short = [(meta["name"], meta.get("deletionTimestamp"), phase) for meta, phase in pods]
        return "\n".join([*lines, str(short), str(self.kubelet.logs()), self.stack.heard[-4000:]])
