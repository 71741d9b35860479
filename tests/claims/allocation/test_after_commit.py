"""A failure after the commit does not change the answer of a create or a release."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from claims.models import Claim
from tests.api.conftest import Callers, caller
from tests.api.helpers import make_pool

__all__ = ["caller"]

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("tables")]
ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture
def failed() -> list[Any]:
    """The calls of hooks that have failed."""
    return []


def fail_in(failed: list[Any]) -> Callable[..., None]:
    def fail(*given: Any) -> None:
        failed.append(given)
        raise RuntimeError("the hook fails")

    return fail


def test_a_failing_hook_does_not_fail_the_answer_of_a_create(
    caller: Callers, monkeypatch: pytest.MonkeyPatch, failed: list[Any]
) -> None:
    ana = caller("claimant", make_pool("full", slots=1))
    assert ana.post("claims/", {"pool": "full"}).status == 201
    monkeypatch.setattr("claims.allocation.new_claim.request_scaling", fail_in(failed))
    made = ana.post("claims/", {"pool": "full"})
    assert (made.status, made.body["state"]) == (202, "waiting")
    assert len(failed) == 1


def test_a_failing_hook_does_not_fail_the_answer_of_a_release(
    caller: Callers, monkeypatch: pytest.MonkeyPatch, failed: list[Any]
) -> None:
    ana = caller("claimant", make_pool("tf", slots=["any"]))
    made = ana.post("claims/", {"pool": "tf", "task": "plan", "workspace": "net/prod"})
    assert made.status == 201, made.body
    monkeypatch.setattr("claims.lifecycle.release.free_workspace", fail_in(failed))
    released = ana.post(
        f"claims/{made.body['id']}/release/", {"generation": made.body["generation"]}
    )
    assert (released.status, released.body["state"]) == (200, "ended")
    assert len(failed) == 1
    assert Claim.objects.get(pk=made.body["id"]).state == "ended"


def test_every_commit_hook_is_registered_by_after_commit() -> None:
    direct = [
        f"{file}:{number}"
        for folder in ("project", "pools", "slots", "claims")
        for file in (ROOT / folder).rglob("*.py")
        for number, line in enumerate(file.read_text().splitlines(), 1)
        if re.search(r"\bon_commit\(", line) and file.name != "after_commit.py"
    ]
    assert not direct, "Django's own report of a failed hook fails for a functools.partial"
