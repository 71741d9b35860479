"""The test kubelet: pods run as processes, report their state, and end with all their child
processes.
"""

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.kubernetes_cluster.clusters import KubeWorld
from tests.kubernetes_cluster.fake_store import stamp
from tests.kubernetes_cluster.kubelet import Kubelet
from tests.kubernetes_cluster.namespace import Space

SLEEPS = """
import signal, subprocess
print(subprocess.Popen(["sleep", "1000"], start_new_session=True).pid, flush=True)
signal.pause()
"""


@pytest.fixture
def space(kube_world: KubeWorld) -> Iterator[Space]:
    space = Space(kube_world).make()
    yield space
    space.remove()


@pytest.fixture
def kubelet(space: Space) -> Iterator[Kubelet]:
    with Kubelet(space) as kubelet:
        yield kubelet


def run(space: Space, code: str, name: str = "p", *, grace: int = 20, **spec: Any) -> None:
    container: Any = {
        "name": "agent",
        "image": "x",
        "command": ["python3", "-c", code],
        **spec.pop("container", {}),
    }
    body = {
        "metadata": {"name": name},
        "spec": {"containers": [container], "terminationGracePeriodSeconds": grace, **spec},
    }
    space.create("pods", body)


def phase_of(space: Space, name: str = "p") -> str:
    return str(space.pod(name)["status"]["phase"])


def log_of(kubelet: Kubelet, name: str = "p") -> str:
    return kubelet.logs().get(name, "")


def is_there(pid: int) -> bool:
    return Path(f"/proc/{pid}").exists()


def test_pod_runs_with_its_secret_and_its_variables(space: Space, kubelet: Kubelet) -> None:
    space.create("secrets", {"metadata": {"name": "p"}, "stringData": {"token": "told"}})
    volumes = [
        {"name": "token", "secret": {"secretName": "p", "defaultMode": 0o440}},
        {"name": "state", "emptyDir": {}},
    ]
    mounts = [
        {"name": "token", "mountPath": "/run/secrets/berth"},
        {"name": "state", "mountPath": "/state"},
    ]
    env = [
        {"name": "FILE", "value": "/run/secrets/berth/token"},
        {"name": "STATE", "value": "/state/agent"},
    ]
    code = (
        "import os, signal; os.mkdir(os.environ['STATE']); print(open(os.environ['FILE']).read(), "
        "flush=True); signal.pause()"
    )
    run(space, code, volumes=volumes, container={"volumeMounts": mounts, "env": env})
    space.until(lambda: "told" in log_of(kubelet))
    space.until(lambda: phase_of(space) == "Running")
    pod = space.pod("p")
    assert pod["spec"]["nodeName"] == "n1"
    assert pod["status"]["podIP"].startswith("10.")


@pytest.mark.parametrize(("code", "phase"), [(0, "Succeeded"), (3, "Failed")])
def test_pod_that_exits_reports_its_exit_code(
    space: Space, kubelet: Kubelet, code: int, phase: str
) -> None:
    run(space, f"raise SystemExit({code})")
    space.until(lambda: phase_of(space) == phase)
    assert (
        space.pod("p")["status"]["containerStatuses"][0]["state"]["terminated"]["exitCode"] == code
    )
    assert kubelet.started == ["p"]


def test_deleted_pod_is_terminated_with_its_child_processes(space: Space, kubelet: Kubelet) -> None:
    run(space, SLEEPS)
    pid = int(space.until(lambda: log_of(kubelet).strip()))
    assert space.delete("p") == 200
    space.until(lambda: space.get("p") is None)
    assert not is_there(pid)
    assert kubelet.killed == []


def test_pod_that_ignores_sigterm_is_killed_after_its_grace(space: Space, kubelet: Kubelet) -> None:
    run(space, f"import signal; signal.signal(15, signal.SIG_IGN)\n{SLEEPS}", grace=1)
    pid = int(space.until(lambda: log_of(kubelet).strip()))
    space.delete("p")
    space.until(lambda: space.get("p") is None)
    assert not is_there(pid)
    assert kubelet.killed == ["p"]


def test_pod_deleted_without_grace_ends_its_process(space: Space, kubelet: Kubelet) -> None:
    run(space, SLEEPS)
    pid = int(space.until(lambda: log_of(kubelet).strip()))
    space.delete("p", grace=0)
    space.until(lambda: not is_there(pid))


def test_pod_on_a_lost_node_stays_after_its_process_died(space: Space, kubelet: Kubelet) -> None:
    run(space, SLEEPS)
    pid = int(space.until(lambda: log_of(kubelet).strip()))
    space.until(lambda: phase_of(space) == "Running")
    kubelet.lost.add("p")
    space.lose_node("p")
    assert space.pod("p")["metadata"]["deletionTimestamp"] > stamp()
    os.kill(pid, signal.SIGKILL)
    assert space.get("p") is not None


def test_restarted_server_learns_the_state_of_its_pods(space: Space, kubelet: Kubelet) -> None:
    run(space, SLEEPS)
    space.until(lambda: log_of(kubelet).strip())
    space.until(lambda: phase_of(space) == "Running")
    space.world.kill()
    kubelet.kill("p")
    space.until(lambda: not kubelet.running)
    space.world.start()
    space.until(lambda: phase_of(space) == "Failed")
