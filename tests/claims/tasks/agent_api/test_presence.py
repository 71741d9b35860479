"""The presence of an agent: hello, orders, heartbeat, stopped slots and goodbye."""

from typing import Any

import pytest
from django.db import connection

from claims.lifecycle.cancel import cancel_claim
from claims.models import Run, Task
from claims.tasks.agent_api import schemas
from claims.tasks.runs.orders import HeartbeatBuffer, read_orders
from pools.access import rate_limit
from pools.models import Heartbeat, Member, Pool
from project.kernel.models import Event
from slots.members.liveness import take_offline
from slots.members.services import remove_member
from slots.models import Slot
from tests.api.conftest import Caller, Callers
from tests.claims.tasks.agent_api.conftest import Agent, agent_of, make_agents, make_claim

pytestmark = pytest.mark.django_db
HELLO = {
    "version": "1",
    "python": "3.11",
    "platform": "linux_amd64",
    "host": "h",
    "pid": 7,
    "boot": "b1",
    "runs": [],
}


def test_hello_answers_orders_intervals_and_limits(agent: Agent) -> None:
    claim = make_claim(Pool.objects.get(), is_started=False)
    answer = agent.post("hello/", HELLO)
    assert answer.status == 200
    told = answer.body
    assert (told["member"], told["pool"], told["incarnation"], told["beat_s"], told["wait_s"]) == (
        "a",
        "tf",
        1,
        15,
        15,
    )
    assert told["limits"] == {
        "chunk_bytes": 64_000, "log_head_bytes": 6_000_000, "log_tail_bytes": 2_000_000,
        "plan_bytes": 32_000_000, "json_bytes": 32_000_000, "source_bytes": 32_000_000,
    }  # fmt: skip
    assert [order["claim"] for order in told["orders"]] == [claim.id] and told["draining"] is False
    assert Heartbeat.objects.get(member=agent.member).load == {
        k: v for k, v in HELLO.items() if k != "runs"
    }


def test_hello_makes_an_offline_member_ready(db: None) -> None:
    pool = make_agents()
    Member.objects.filter(pool=pool).update(state="offline")
    agent = agent_of(pool.members.get())
    assert agent.post("hello/", HELLO).status == 200
    assert pool.members.get().state == "ready"


def test_orders_list_running_claims_and_slots_to_stop(agent: Agent, pool: Pool) -> None:
    assert agent.get("orders/").body == read_orders(agent.member.pk).as_dict() | {
        "orders": [],
        "stop": [],
        "keep": [],
    }
    first, second = make_claim(pool, "plan_and_apply"), make_claim(pool)
    told = agent.get("orders/").body
    assert [(o["claim"], o["generation"], o["step"], o["task"]) for o in told["orders"]] == [
        (claim.id, claim.generation, "plan", claim.task)
        for claim in sorted((first, second), key=lambda claim: claim.slots[0].id)
    ]
    assert {o["place"] for o in told["orders"]} == {"any-0", "plan-1"}
    cancel_claim(claim_id=second.id)
    now = agent.get("orders/").body
    assert [o["claim"] for o in now["orders"]] == [first.id]
    assert [(s["slot"], s["generation"]) for s in now["stop"]] == [
        (second.slots[0].id, second.generation)
    ]
    assert now["version"] != told["version"]


def test_orders_list_a_reserved_claim_to_keep(agent: Agent, pool: Pool) -> None:
    claim = make_claim(pool, "plan_and_apply")
    before = agent.get("orders/").body["version"]
    result = {"outcome": "planned", "digest": "ab" * 32, "exit_code": 2, "summary": {"add": 1}}
    answer = agent.post(f"tasks/{claim.id}/{claim.generation}/result/", result)
    assert answer.body == {"state": "reserved", "outcome": "", "keep": True}
    told = agent.get("orders/").body
    assert (told["orders"], told["stop"], told["keep"]) == ([], [], [claim.id]) and told[
        "version"
    ] != before


def test_a_claim_without_a_task_is_no_order(agent: Agent, pool: Pool) -> None:
    claim = make_claim(pool, is_started=False)
    Task.objects.filter(claim_id=claim.id).delete()
    assert agent.get("orders/").body["orders"] == []


def test_orders_say_that_the_member_is_leaving(agent: Agent, pool: Pool) -> None:
    make_claim(pool)
    before = agent.get("orders/").body
    remove_member(member_id=agent.member.pk, reason="smaller")
    now = agent.get("orders/").body
    assert (before["is_leaving"], now["is_leaving"]) == (False, True) and now["version"] != before[
        "version"
    ]


def test_each_poll_counts_as_a_heartbeat_and_keeps_the_load(agent: Agent) -> None:
    assert agent.post("heartbeat/", {"load": {"running": 2}}).status == 200
    with connection.cursor() as cursor:
        cursor.execute("UPDATE pools_heartbeat SET at = now() - interval '1 min'")
    assert agent.get("orders/").status == 200
    row = Heartbeat.objects.get(member=agent.member)
    with connection.cursor() as cursor:
        cursor.execute("SELECT now() - at < interval '30 s' FROM pools_heartbeat")
        assert cursor.fetchone()[0] and row.load == {"running": 2}


def test_a_poll_makes_an_offline_member_ready(agent: Agent, pool: Pool) -> None:
    take_offline(member_id=agent.member.pk, reason="silent")
    assert agent.get("orders/").status == 200
    assert pool.members.get().state == "ready"


def test_heartbeats_heard_together_are_written_together(db: None) -> None:
    members = list(make_agents("many", ("a", "b", "c")).members.all())
    buffer = HeartbeatBuffer()
    for member in members:
        buffer.record(member.pk, 1)
    assert Heartbeat.objects.count() == 1, "the first at once"
    buffer._written_at = 0.0
    buffer.record(members[0].pk, 1)
    assert Heartbeat.objects.count() == 3
    buffer._written_at = 0.0
    buffer.record(members[0].pk, 99)
    assert Heartbeat.objects.get(member=members[0]).incarnation == 1, (
        "an old one, or one to come, is not heard"
    )


def test_a_stopped_slot_becomes_idle(agent: Agent, pool: Pool) -> None:
    claim = make_claim(pool)
    cancel_claim(claim_id=claim.id)
    (stop,) = agent.get("orders/").body["stop"]
    assert agent.post("stopped/", {"slots": [stop]}).body == {}
    assert Slot.objects.get(pk=stop["slot"]).state == "idle"
    assert agent.post("stopped/", {"slots": [stop]}).status == 200, "again: nothing happens"


def test_false_reports_about_slots_are_refused_and_change_nothing(agent: Agent, pool: Pool) -> None:
    other = make_agents("other")
    mine, theirs = make_claim(pool), make_claim(other)
    for claim in (mine, theirs):
        cancel_claim(claim_id=claim.id)
    pairs = [
        {"slot": claim.slots[0].id, "generation": claim.generation} for claim in (mine, theirs)
    ]
    answer = agent.post("stopped/", {"slots": pairs})
    assert (answer.status, answer.body["code"]) == (409, "not_yours")
    assert set(
        Slot.objects.filter(pk__in=[p["slot"] for p in pairs]).values_list("state", flat=True)
    ) == {"draining"}
    assert Event.objects.filter(verb="refused_agent", member_id=agent.member.pk).count() == 1
    stale = {"slot": pairs[0]["slot"], "generation": pairs[0]["generation"] - 1}
    assert agent.post("stopped/", {"slots": [stale]}).status == 200
    assert Slot.objects.get(pk=stale["slot"]).state == "draining", "another generation"


def test_a_run_that_hello_reports_as_lost_ends_as_lost(agent: Agent, pool: Pool) -> None:
    claim = make_claim(pool)
    runs = [{"claim": claim.id, "generation": claim.generation, "step": "plan", "status": "lost"}]
    assert agent.post("hello/", HELLO | {"runs": runs}).status == 200
    run = Run.objects.get(claim_id=claim.id)
    assert run.outcome == "lost" and run.ended_at


def test_a_second_machine_with_the_token_is_refused_until_the_first_is_silent(
    agent: Agent, pool: Pool
) -> None:
    """A second agent would lose the tasks of the first and free their slots."""
    assert agent.post("hello/", HELLO).status == 200
    claim = make_claim(pool)
    second = HELLO | {"host": "other", "boot": "b9"}
    assert agent.post("heartbeat/", {"load": {"running": 1}}).status == 200, (
        "it goes on being the one that is known"
    )
    answer = agent.post("hello/", second)
    assert (answer.status, answer.body["code"]) == (409, "another_agent")
    assert (
        Run.objects.get(claim_id=claim.id).ended_at is None
        and Slot.objects.get(claim_id=claim.id).state == "held"
    )
    assert Event.objects.filter(verb="refused_agent", member_id=agent.member.pk).count() == 1
    assert agent.post("hello/", HELLO).status == 200, "the first is heard as before"
    with connection.cursor() as cursor:
        cursor.execute("UPDATE pools_heartbeat SET at = now() - interval '31 s'")
    assert agent.post("hello/", second).status == 200
    assert Run.objects.get(claim_id=claim.id).outcome == "lost"


def test_an_agent_restarted_on_its_machine_is_accepted_at_once(agent: Agent, pool: Pool) -> None:
    assert agent.post("hello/", HELLO).status == 200
    claim = make_claim(pool)
    assert agent.post("hello/", HELLO | {"boot": "b9"}).status == 200
    assert Run.objects.get(claim_id=claim.id).outcome == "lost"


def test_hello_reports_on_foreign_or_unknown_claims_are_ignored(agent: Agent) -> None:
    theirs = make_claim(make_agents("other"))
    pairs = [(2**63 - 1, 1), (theirs.id, theirs.generation)]
    runs = [
        {"claim": claim, "generation": generation, "status": "lost"} for claim, generation in pairs
    ]
    assert agent.post("hello/", HELLO | {"runs": runs}).status == 200
    assert Run.objects.get(claim_id=theirs.id).ended_at is None


def test_goodbye_takes_the_member_offline_at_once(agent: Agent, pool: Pool) -> None:
    claim = make_claim(pool)
    assert agent.post("goodbye/", {}).body == {}
    assert pool.members.get().state == "offline"
    assert Slot.objects.get(claim_id=claim.id).state == "held", "it keeps its claims"


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("POST", "hello/", {}), ("POST", "hello/", {"boot": 5}), ("POST", "hello/", {"boot": ""}),
        ("POST", "tasks/1/1/started/", {"boot": " "}),
        ("POST", "hello/", {"boot": "b", "runs": 5}),
        ("POST", "hello/", {"boot": "b", "runs": [{"claim": 1}]}),
        ("POST", "hello/", {"boot": "b", "odd": 1}), ("POST", "hello/", []),
        ("GET", "orders/?wait=61", None), ("GET", "orders/?wait=x", None),
        ("GET", "orders/?since=1", None), ("POST", "heartbeat/", {"load": 5}),
        ("POST", "heartbeat/", {"load": {"x": "y" * 5000}}), ("POST", "stopped/", {}),
        ("POST", "stopped/", {"slots": [{"slot": "a"}]}), ("POST", "stopped/", {"slots": 7}),
        ("POST", "goodbye/", {"really": True}),
    ],
)  # fmt: skip
def test_malformed_agent_calls_are_refused(agent: Agent, method: str, path: str, body: Any) -> None:
    answer = agent(method, path, body)
    assert answer.status == 400, answer.body
    assert answer.body["way_out"]


def test_only_member_tokens_open_the_agent_api(agent: Agent, caller: Callers) -> None:
    for who in (
        Caller(),
        caller("superuser"),
        Caller("berthm_1_x"),
        Caller(agent.secret[:-2] + "xx"),
    ):
        answer = who.get("agent/orders/")
        assert (answer.status, answer.headers["WWW-Authenticate"][:6]) == (401, "Bearer")
        assert "member" in answer.body["way_out"] or "berthm_" in answer.body["way_out"]
    assert agent.call.get("me/").status == 401, "and they open nothing else"
    Member.objects.filter(pk=agent.member.pk).update(incarnation=2)
    answer = agent.get("orders/")
    assert (answer.status, answer.body["code"]) == (
        401,
        "bad_token",
    ) and "incarnation 1" in answer.body["detail"]


def test_an_agent_over_its_rate_limit_is_refused_without_a_query(
    agent: Agent, settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings.BERTH_REQUESTS_PER_MINUTE, settings.BERTH_STRANGERS_PER_MINUTE = 3, 2
    rate_limit._of_callers.cache_clear()
    rate_limit._of_strangers.cache_clear()
    other = agent_of(make_agents("other").members.get())
    assert [agent.get("orders/").status for _ in range(5)] == [200, 200, 200, 429, 429]
    assert other.get("orders/").status == 200, "the others do not notice"
    unknown = [Caller(f"berthm_{agent.member.pk}_{n:043}").get("agent/orders/") for n in range(4)]
    assert [(a.status, a.body["code"]) for a in unknown] == [(401, "bad_token")] * 2 + [
        (429, "too_many_unknown")
    ] * 2
    monkeypatch.setattr(
        "claims.tasks.agent_api.endpoint.identify_member",
        lambda secret: pytest.fail("the database was asked"),
    )
    repeated = Caller(f"berthm_{agent.member.pk}_{3:043}")
    assert agent.get("orders/").status == 429 and repeated.get("agent/orders/").status == 429
    assert Event.objects.filter(verb="refused_agent", member_id=agent.member.pk).count() == 1


def test_a_call_of_a_gone_member_is_refused_and_recorded(agent: Agent) -> None:
    Slot.objects.filter(member=agent.member).delete()
    Member.objects.filter(pk=agent.member.pk).update(state="gone")
    assert agent.get("orders/").status == 401
    assert Event.objects.filter(verb="refused_agent", member_id=agent.member.pk).exists()


def test_the_schema_shows_that_the_text_of_a_start_is_not_empty() -> None:
    for body in (schemas.HELLO, schemas.STARTED):
        assert body.schema()["properties"]["boot"]["minLength"] == 1
