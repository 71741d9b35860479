"""A queue follows its pool when the pool appears, changes or goes."""

import pytest

from claims.models import Shape
from pools.lifecycle.services import update_pool
from pools.models import Pool
from project.kernel.models import Event
from tests.claims.helpers import again, ask, make_pool, serve, sql, verbs

pytestmark = pytest.mark.usefixtures("tables")


def test_a_queue_older_than_its_pool_takes_the_only_kind_of_the_pool() -> None:
    claim = ask()
    assert claim.kind == ""
    make_pool(slots=["any"])
    serve()
    assert again(claim).kind == "", "a pool with several kinds says nothing of it"
    other = ask("ports")
    make_pool("ports", slots={"ports": "30000-30001", "shared": True})
    serve()
    found = again(other)
    assert (found.state, found.kind) == ("bound", Shape.objects.get(pk=found.shape_id).kind)
    assert found.kind


def test_a_changed_layout_reaches_waiting_claims_at_once() -> None:
    make_pool(slots=["any"], members=0)
    claim = ask(kind="plan")
    serve()
    shape = Shape.objects.get(pk=claim.shape_id)
    assert (shape.lanes, shape.tried_at is not None) == (["any"], True)
    update_pool("lab", {"name": "lab", "slots": ["plan", "any"], "members": {"max": 1}})
    serve()
    shape.refresh_from_db()
    assert shape.lanes == ["plan", "any"], "not after the twenty seconds in which a line is let be"
    sql("UPDATE pools_pool SET changed_at = changed_at - interval '2 ms'")
    sql("UPDATE claims_shape SET tried_at = tried_at - interval '1 ms'")
    tried = sql("SELECT tried_at FROM claims_shape")
    serve()
    assert sql("SELECT tried_at FROM claims_shape") == tried, "once"


def test_a_waiting_claim_is_detached_when_its_pool_is_gone() -> None:
    make_pool("eu")
    make_pool("us")
    holder = ask("us")
    claim = ask(pools=["eu", "us"])
    assert claim.state == "waiting"
    sql("UPDATE claims_shape SET tried_at = NULL")
    pool = Pool.objects.get(name="eu")
    sql("SET session_replication_role = replica")
    sql("UPDATE pools_pool SET state = 'gone' WHERE id = %s", pool.pk)
    sql("SET session_replication_role = origin")
    serve()
    assert verbs(claim) == ["create", "disown"]
    event = Event.objects.get(verb="disown")
    assert (event.pool_id, event.reason) == (
        pool.pk,
        "its pool is gone, it waits for another of this name",
    )
    assert again(claim).pool_id is None
    assert again(holder).state == "bound"
