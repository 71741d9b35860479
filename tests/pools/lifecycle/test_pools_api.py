"""Pools by API: created, changed with an ETag, deleted with or without their claims."""

from typing import Any

import pytest

from pools.models import Pool
from tests.api.conftest import Caller, Callers
from tests.api.helpers import make_pool


@pytest.fixture
def root(caller: Callers) -> Caller:
    return caller("superuser")


def test_pool_is_created_read_and_changed(root: Caller) -> None:
    made = root.post("pools/", {"name": "env", "slots": 2, "members": {"list": ["a", "b"]}})
    assert (made.status, made.headers["Location"]) == (201, "/api/v1/pools/env/")
    assert (made.body["slots"]["open"], made.body["members"]["ready"], made.body["waiting"]) == (
        4,
        2,
        0,
    )
    read = root.get("pools/env/")
    assert read.headers["ETag"] == made.headers["ETag"]
    changed = root(
        "PATCH", "pools/env/", {"description": "for tests"}, If_Match=read.headers["ETag"]
    )
    assert (changed.status, changed.body["description"], changed.body["revision"]) == (
        200,
        "for tests",
        2,
    )
    assert changed.headers["ETag"] != read.headers["ETag"]
    put = root("PUT", "pools/env/", changed.body["config"], If_Match=changed.headers["ETag"])
    assert (put.status, put.body["config"]) == (200, changed.body["config"]), (
        "what GET gives, PUT takes"
    )


def test_change_with_a_missing_or_stale_etag_is_refused(root: Caller) -> None:
    make_pool("env")
    for method, body in (("PUT", {"slots": 2}), ("PATCH", {"description": "x"})):
        assert root(method, "pools/env/", body).status == 428
        stale = root(method, "pools/env/", body, If_Match='"old"')
        assert (stale.status, stale.body["code"]) == (412, "changed_meanwhile")
    assert Pool.objects.get().revision == 1


def test_merge_patch_removes_a_field_with_null(root: Caller) -> None:
    make_pool("env", description="for tests", lease={"hold": "8h", "acknowledge": "30s"})
    etag = root.get("pools/env/").headers["ETag"]
    answer = root(
        "PATCH", "pools/env/", {"description": None, "lease": {"hold": None}}, If_Match=etag
    )
    assert answer.body["description"] == ""
    assert answer.body["config"]["lease"] == {"acknowledge": "30s"}
    assert [member["name"] for member in answer.body["config"]["members"]["list"]] == ["a"], (
        "members stay"
    )


def test_invalid_change_reports_every_fault_and_changes_nothing(root: Caller) -> None:
    bad = {
        "name": "Bad Name",
        "slots": 0,
        "placement": "everywhere",
        "colour": "red",
        "lease": {"hold": "soon"},
    }
    answer = root.post("pools/", bad)
    assert answer.status == 400
    assert sorted(fault["field"] for fault in answer.body["errors"]) == [
        "colour",
        "lease.hold",
        "name",
        "placement",
        "slots",
    ]
    assert all(fault["message"] and fault["way_out"] for fault in answer.body["errors"])
    assert not Pool.objects.exists()


def test_change_that_would_move_claims_is_refused_by_field(root: Caller) -> None:
    make_pool("env")
    etag = root.get("pools/env/").headers["ETag"]
    answer = root("PATCH", "pools/env/", {"slots": 3}, If_Match=etag)
    assert (answer.status, answer.body["errors"][0]["field"]) == (422, "slots")


def test_pool_is_deleted_only_without_claims_or_together_with_them(root: Caller) -> None:
    make_pool("env")
    claim = root.post("claims/", {"pool": "env"}).body
    assert (root("DELETE", "pools/env/").status, Pool.objects.get().state) == (409, "active")
    assert root("DELETE", "pools/env/?cascade=maybe").status == 400
    assert root("DELETE", "pools/env/?cascade=true&reason=done").status == 200
    assert root.get(f"claims/{claim['id']}/").body["state"] == "ended"


def test_unknown_object_is_a_404_problem(root: Caller) -> None:
    for path in (
        "pools/none/",
        "claims/999/",
        "members/999/",
        "slots/999/held-by/",
        "tokens/999/",
        "workspaces/none/",
        "nothing/",
        "claims/x/",
    ):
        answer = root.get(path)
        assert (answer.status, answer.body["status"], answer.headers["Content-Type"]) == (
            404,
            404,
            "application/problem+json",
        ), path


def test_unknown_field_or_parameter_is_refused_by_name(root: Caller) -> None:
    make_pool("env")
    bodies: list[tuple[str, str, Any]] = [
        ("POST", "claims/", {"pool": "env", "sice": 2}),
        ("POST", "pools/env/pause/", {"until": "2099-01-01T00:00:00Z", "reason": "x", "untill": 1}),
        ("POST", "pools/env/members/", {"name": "b", "lables": {}}),
        ("POST", "tokens/", {"name": "t", "role": "viewer"}),
    ]
    for method, path, body in bodies:
        answer = root(method, path, body)
        wrong = {fault["field"].split(".")[-1] for fault in answer.body["errors"]}
        assert answer.status == 400, (path, answer.body)
        assert wrong & {"sice", "untill", "lables", "role"}, (path, wrong)
    for path in ("claims/?stat=bound", "pools/?limt=3", "events/?since_=1", "slots/?poool=env"):
        answer = root.get(path)
        assert (answer.status, len(answer.body["errors"])) == (400, 1), path


def test_api_times_have_an_offset(root: Caller) -> None:
    pool = make_pool("env")
    slot = pool.slots.first()
    assert slot is not None
    naive = "2027-01-01T12:00:00"
    for answer in (
        root.post("pools/env/pause/", {"until": naive, "reason": "x"}),
        root.post("tokens/", {"name": "t", "expires_at": naive}),
        root.get(f"events/?since={naive}"),
        root.get(f"events/?as_of={naive}"),
        root.get(f"slots/{slot.pk}/held-by/?at={naive}"),
    ):
        assert answer.status == 400, answer.body
        assert answer.body["errors"][0]["message"] == "This time has no offset."
        assert answer.body["errors"][0]["way_out"]
    assert root.get(f"slots/{slot.pk}/held-by/?at=2027-01-01T12:00:00%2B01:00").status == 200
