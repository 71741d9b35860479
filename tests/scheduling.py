"""`-p tests.scheduling`: the order of the tests, and which of them run in the same worker of
pytest-xdist.

A worker takes whole modules, in the order of collection; the longest one is two halves. All tests
on the real Kubernetes API server run in one worker, whatever their modules are: each worker that
needs the server starts one, and a server takes as much CPU time as hundreds of tests.
"""

import re
from collections import Counter
from collections.abc import Iterator
from typing import Any
from zlib import crc32

import pytest
from xdist.scheduler import LoadScopeScheduling

# By the parameter `real_kube` in the name of the test, or by the module.
ON_REAL_CLUSTER = re.compile(
    r"\[.*real_kube.*\]"
    r"|^tests/deploy/test_kubernetes_manifests\.py"
    r"|^tests/kernel/kubernetes/test_proxy\.py"
    r"|^tests/kubernetes_cluster/test_fake_server\.py"
    r"|^tests/pools/providers/kubernetes/test_faults\.py"
)
REAL_CLUSTER = "the real cluster"
# The longest module that begins near the end: its halves may run in two workers.
IN_HALVES = "tests/dashboard/test_accessibility.py"
# Tests of these folders wait for agents, pods, servers and timeouts. Those of all others keep a
# core busy.
WAITING = re.compile(
    r"^tests/(bench|end_to_end|faults|install|kernel|kubernetes_cluster|pools/providers|sample"
    r"|slots/agent|upgrade)/"
)


def is_on_real_cluster(nodeid: str) -> bool:
    return ON_REAL_CLUSTER.search(nodeid) is not None


def module_of(nodeid: str) -> str:
    return nodeid.partition("::")[0]


class Scheduling(LoadScopeScheduling):
    def _split_scope(self, nodeid: str) -> str:
        if is_on_real_cluster(nodeid):
            return REAL_CLUSTER
        scope = super()._split_scope(nodeid)
        if scope == IN_HALVES:
            return f"{scope} {crc32(nodeid.encode()) % 2}"
        return scope


def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Scheduling | None:
    return Scheduling(config, log) if config.getoption("dist") == "loadscope" else None


def mix(modules: list[str]) -> Iterator[str]:
    """Modules that wait, spread evenly among those that keep a core busy."""
    waiting = [module for module in modules if WAITING.match(module)]
    busy = [module for module in modules if not WAITING.match(module)]
    places = [
        (number / len(half), module)
        for half in (waiting, busy)
        for number, module in enumerate(half)
    ]
    return (module for _, module in sorted(places))


def wants_browser(item: pytest.Item) -> bool:
    """Whether the test takes the fixture `page`; a parameter of that name does not count."""
    chosen = getattr(getattr(item, "callspec", None), "params", {})
    return "page" in getattr(item, "fixturenames", ()) and "page" not in chosen


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The tests on the real cluster come first, because they take longest. Modules with browser
    tests come last: Playwright's event loop stays, and no asynchronous test can run beside it. The
    longest of them begin first, so that the workers end at about the same time.

    Workers know a test by its node id, and would run one test of those that share an id.
    """
    shared = [name for name, count in Counter(item.nodeid for item in items).items() if count > 1]
    if shared:
        raise pytest.UsageError(f"Several tests have the id {shared[0]}. Name them differently.")
    for item in items:
        if wants_browser(item):
            item.add_marker("browser")
    sizes = Counter(module_of(item.nodeid) for item in items)
    last = {module_of(item.nodeid) for item in items if item.get_closest_marker("browser")}
    ordered = [
        *mix([module for module in sizes if module not in last]),
        *sorted(last, key=lambda module: (-sizes[module], module)),
    ]
    places = {module: place for place, module in enumerate(ordered)}
    items.sort(
        key=lambda item: (
            not is_on_real_cluster(item.nodeid),
            places[module_of(item.nodeid)],
            item.get_closest_marker("browser") is not None,
        )
    )
