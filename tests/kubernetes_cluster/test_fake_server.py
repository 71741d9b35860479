"""The fake API server behaves like the real one in all that a pod provider notices."""

import json
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from tests.kubernetes_cluster.api_comparison import PROBES
from tests.kubernetes_cluster.clusters import FakeKube, KubeWorld, RealKube
from tests.kubernetes_cluster.namespace import Space


def facts_of(world: KubeWorld, ask: Callable[[Space], Any]) -> Any:
    space = Space(world).make()
    try:
        return json.loads(json.dumps(ask(space)))
    finally:
        space.remove()


@pytest.mark.parametrize("ask", PROBES, ids=[probe.__name__ for probe in PROBES])
def test_fake_server_answers_like_the_real_kube_apiserver(
    ask: Callable[[Space], Any], fake_kube: FakeKube, real_kube: RealKube
) -> None:
    with ThreadPoolExecutor(2) as both:  # half of it is waiting
        fake, real = both.map(facts_of, (fake_kube, real_kube), (ask, ask))
    assert fake == real
