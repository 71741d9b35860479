"""Tests on the real Kubernetes API server share a worker, and modules that wait are spread over
the run.
"""

import pytest

from tests.scheduling import IN_HALVES, Scheduling, is_on_real_cluster, mix

FIXTURES = {"real_kube", "best_kube"}


def test_every_test_on_the_real_cluster_is_found_by_its_name(
    request: pytest.FixtureRequest,
) -> None:
    missed = [
        item.nodeid
        for item in request.session.items
        if not is_on_real_cluster(item.nodeid)
        and (
            FIXTURES & set(getattr(item, "fixturenames", ()))
            or "real_kube" in getattr(getattr(item, "callspec", None), "params", {}).values()
        )
    ]
    assert missed == []


def test_tests_on_the_real_cluster_share_a_scope_and_others_keep_their_module() -> None:
    scheduling = Scheduling.__new__(Scheduling)
    provider = "tests/pools/providers/kubernetes/test_provider.py"
    scopes = [
        scheduling._split_scope(f"{module}::test_one[{world}]")
        for module in (provider, "tests/kubernetes_cluster/test_kubelet.py")
        for world in ("fake", "real_kube")
    ]
    assert scopes == [
        provider,
        "the real cluster",
        "tests/kubernetes_cluster/test_kubelet.py",
        "the real cluster",
    ]


def test_the_longest_browser_module_runs_in_two_scopes() -> None:
    scheduling = Scheduling.__new__(Scheduling)
    scopes = {scheduling._split_scope(f"{IN_HALVES}::test_one[{page}]") for page in range(20)}
    assert scopes == {f"{IN_HALVES} 0", f"{IN_HALVES} 1"}


@pytest.mark.parametrize(
    ("modules", "mixed"),
    [
        ("", ""),
        ("claims/a claims/b", "claims/a claims/b"),
        ("claims/a claims/b sample/c sample/d", "claims/a sample/c claims/b sample/d"),
        (
            "claims/a claims/b claims/c claims/d sample/e",
            "claims/a sample/e claims/b claims/c claims/d",
        ),
    ],
)
def test_modules_that_wait_are_spread_evenly_in_their_order(modules: str, mixed: str) -> None:
    given = [f"tests/{name}.py" for name in modules.split()]
    assert list(mix(given)) == [f"tests/{name}.py" for name in mixed.split()]
