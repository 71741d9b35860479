"""Fixtures of the tests over clusters."""

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from project.kernel.kubernetes import client
from slots.sync.watcher import Watcher
from tests.kernel.kubernetes.slow_server import Answer, Begin, Slow
from tests.pools.providers.kubernetes.harness import KubeHarness


@pytest.fixture(scope="module")
def target() -> Iterator[Path]:
    """The folder that tasks write to. They may run as other users, so all users may write there."""
    found = Path(tempfile.mkdtemp(dir="/var/tmp", prefix="berth-test-"))
    found.chmod(0o777)
    yield found
    shutil.rmtree(found)


@pytest.fixture
def bench(request: pytest.FixtureRequest, settings: Any) -> Iterator[KubeHarness]:
    """On the cluster in memory."""
    bench = KubeHarness("fake_kube")
    with bench.world_of_its_own(request, settings):
        yield bench


@pytest.fixture
def watcher() -> Iterator[Watcher]:
    watcher = Watcher()
    yield watcher
    watcher.close()


@pytest.fixture
def begin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Begin]:
    """A server, and a kubeconfig that leads there."""
    begun = list[Slow]()

    def begin(
        answer: Answer,
        *,
        is_secure: bool = False,
        user: Any = None,
        name: str = "127.0.0.1",
        more: Any = None,
    ) -> Slow:
        slow = Slow(tmp_path, answer, is_secure=is_secure)
        begun.append(slow)
        trusts = {"certificate-authority": slow.authority} if is_secure else {}
        text = {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "slow",
            "clusters": [
                {
                    "name": "c",
                    "cluster": {"server": slow.url.replace("127.0.0.1", name)}
                    | trusts
                    | (more or {}),
                }
            ],
            "users": [{"name": "u", "user": (user(slow) if user else {"token": "t"})}],
            "contexts": [{"name": "slow", "context": {"cluster": "c", "user": "u"}}],
        }
        (tmp_path / "config").write_text(yaml.safe_dump(text))
        monkeypatch.setenv("BERTH_KUBECONFIG", str(tmp_path / "config"))
        client.forget()
        return slow

    yield begin
    client.forget()
    for slow in begun:
        slow.close()
