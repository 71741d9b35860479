"""`-p tests.kubernetes_cluster.plugin`: clusters for tests, one in memory and a real one as `make
kube` builds it. Each is started once, when a test first wants it. Where the real one is missing its
tests are left out (tests.left_out)."""

import os
import subprocess
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from tests.kubernetes_cluster.clusters import FakeKube, KubeWorld, RealKube
from tests.left_out import KUBE

ROOT = Path(__file__).resolve().parents[2]
# What stands in the names of tests, and the fixture.
WORLDS = {"fake": "fake_kube", "real_kube": "real_kube"}


@pytest.fixture(scope="session")
def fake_kube() -> Iterator[FakeKube]:
    world = FakeKube()
    yield world
    world.close()


@cache
def find_programs() -> Path | None:
    built = Path(
        subprocess.run(
            [ROOT / ".ci/kube", "--path"], capture_output=True, text=True, check=True
        ).stdout.strip()
    )
    return (
        built
        if all(os.access(built / name, os.X_OK) for name in ("etcd", "kube-apiserver"))
        else None
    )


@pytest.fixture(scope="session")
def real_kube() -> Iterator[RealKube]:
    built = find_programs()
    if built is None:
        pytest.skip(KUBE)
    world = RealKube(built)
    yield world
    world.close()


@pytest.fixture(scope="session", params=list(WORLDS))
def kube_world(request: pytest.FixtureRequest) -> KubeWorld:
    """Both, one after the other."""
    world: KubeWorld = request.getfixturevalue(WORLDS[request.param])
    return world


@pytest.fixture(scope="session")
def best_kube(request: pytest.FixtureRequest) -> KubeWorld:
    """The real one, where it is built: for what takes long and need not be done twice."""
    world: KubeWorld = request.getfixturevalue("real_kube" if find_programs() else "fake_kube")
    return world
