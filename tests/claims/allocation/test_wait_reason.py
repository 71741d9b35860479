"""The wait reason of a claim, computed from rows: numbers, names, way out and estimated start."""

from datetime import timedelta

import pytest
from django.utils import timezone

from claims.allocation.bulk import create_claims
from claims.allocation.requests.policy import STRICT_AFTER
from claims.allocation.selectors import (
    ClaimFilter,
    count_queues,
    list_claims,
    queue_of_pool,
    view_claim,
)
from claims.workspaces.services import lock_workspace
from project.kernel.errors import NotFound
from slots.members.liveness import take_offline
from slots.members.services import cordon_member, pause_pool
from tests.claims.helpers import (
    again,
    age,
    ask,
    elapse,
    let_go,
    make_pool,
    member,
    serve,
    sql,
    wish,
    ws,
)

pytestmark = pytest.mark.usefixtures("tables")


def why(claim: object) -> tuple[str, str, list[str]]:
    wait = view_claim(claim.id, explain=True).wait  # type: ignore[attr-defined]
    assert wait is not None
    return wait.code, wait.text, wait.unblock


def test_a_full_pool_names_the_members_and_claims_that_could_help() -> None:
    make_pool(slots=2, members=["a", "b", "c"], most=4)
    cordon_member(member_id=member("b").pk, reason="disk")
    take_offline(member_id=member("c").pk, reason="no heartbeat")
    holders = [ask(), ask()]
    claim = ask()
    assert why(claim) == (
        "full",
        "All 6 slots are taken: 2 held, 2 offline, 2 closed",
        ["b is uncordoned", "c answers", "One more member", "One of 2 claims ends"],
    )
    wait = view_claim(claim.id, explain=True).wait
    assert wait is not None
    assert (wait.blockers, wait.facts["closed"], wait.facts["max_members"]) == (
        [holders[0].id, holders[1].id],
        2,
        4,
    )


def test_a_wait_for_a_run_or_one_member_names_the_best_member() -> None:
    make_pool("eu", slots={"ports": "30000-30009", "shared": True}, members=["lb-1"])
    claims = [ask("eu") for _ in range(10)]
    for i in (2, 3, 4, 8):
        let_go(claims[i])
    assert why(ask("eu", size=5, contiguous=True))[:2] == (
        "not_contiguous",
        "Largest free run is 3 of 5 (lb-1)",
    )
    make_pool("tf", slots=["any", "plan"], members=["r1", "r2"])
    for _ in range(3):
        ask("tf", kind="plan")
    assert (
        why(ask("tf", kind="plan", size=2, on_one_member=True))[1]
        == "No member has 2 open plan and any slots; the most is 1 (r2)"
    )


def test_a_wait_for_one_member_counts_only_members_with_its_labels() -> None:
    make_pool(slots=3, members=["plain", {"name": "gpu", "labels": {"gpu": "t4"}}])
    ask(selector={"gpu": "t4"}, size=2)
    claim = ask(selector={"gpu": "t4"}, size=2, on_one_member=True)
    assert why(claim)[:2] == ("not_together", "No member has 2 open slots; the most is 1 (gpu)")


@pytest.mark.parametrize(
    "how", [{"on_one_member": True}, {"contiguous": True}], ids=["together", "in a row"]
)
def test_room_that_appeared_since_the_last_try_is_reported(how: dict[str, bool]) -> None:
    """A stale reason would read: no member has 2 open slots; the most is 2."""
    make_pool(slots={"ports": "30000-30002", "shared": True})
    first = [ask() for _ in range(3)]
    claim, behind = ask(size=2, **how), ask(size=2, **how)
    let_go(first[0])
    let_go(first[1])
    assert why(claim)[:2] == ("next", "2 slots are open")
    assert why(behind)[1] == "2 slots are open, and 1 claim is ahead"


def test_a_paused_pool_is_named_with_its_end_and_reason() -> None:
    pool = make_pool()
    until = timezone.now() + timedelta(hours=2)
    pause_pool(pool_id=pool.pk, until=until, reason="firmware")
    claim = ask()
    assert claim.wait is not None
    assert claim.wait.code == "pool_paused"
    assert f"{until:%H:%M} UTC: firmware" in claim.wait.text
    assert (claim.wait.start, claim.wait.start_note[:10]) == (None, "not before")


def test_a_place_counts_only_competing_claims() -> None:
    make_pool("eu", slots={"ports": "30000-30001", "protocols": ["tcp", "udp"], "quota": 2})
    for kind in ("tcp", "udp"):
        ask("eu", kind=kind)
    tcp = [ask("eu", kind="tcp") for _ in range(2)]
    udp = ask("eu", kind="udp")
    tls = ask("eu", kind="tcp_ssl", priority=5)
    places = [
        wait.place
        for claim in (*tcp, udp, tls)
        if (wait := view_claim(claim.id, explain=True).wait)
    ]
    assert places == [2, 3, 1, 1]
    queue = queue_of_pool("eu")
    assert [claim.id for claim in queue] == [tls.id, tcp[0].id, tcp[1].id, udp.id]
    assert [claim.wait.place for claim in queue if claim.wait] == [1, 2, 3, 1]
    assert view_claim(let_go(again(queue_holder("eu"))).id, explain=True).wait is None


def queue_holder(pool: str) -> object:
    return list_claims(ClaimFilter(states=["bound"]))[0]


def test_a_queue_shows_its_first_hundred_claims_with_places() -> None:
    make_pool(slots=1)
    ask()
    create_claims([wish(owner=f"pod:{i}") for i in range(150)])
    ask(size=1, selector={"gpu": "t4"})
    queue = queue_of_pool("lab")
    assert len(queue) == 100
    assert [claim.wait.place for claim in queue if claim.wait] == list(range(1, 101))
    assert {claim.wait.code for claim in queue if claim.wait} == {"full"}
    assert queue[41].wait is not None
    assert queue[41].wait.text.endswith("and 41 claims are ahead")


def test_blocked_claims_come_last_in_the_queue_without_a_place() -> None:
    make_pool("tf", slots=["any"])
    running = ask("tf", task="plan_and_apply", workspace="net")
    blocked = ask("tf", task="plan_and_apply", workspace="net")
    waiting = ask("tf", kind="plan")
    lock_workspace(workspace_id=ws("dns", "tf"), reason="audit")
    locked = ask("tf", task="plan", workspace="dns")
    queue = queue_of_pool("tf")
    assert [(claim.id, claim.wait.code, claim.wait.place) for claim in queue if claim.wait] == [
        (waiting.id, "full", 1), (blocked.id, "workspace_busy", None),
        (locked.id, "workspace_locked", None),
    ]  # fmt: skip
    assert queue[1].wait is not None
    assert queue[1].wait.text == f"Workspace net is busy with claim {running.id}, running"
    counts = count_queues()
    assert [(c.waiting, c.blocked) for c in counts.values()] == [(1, 2)]


def test_the_start_is_estimated_from_recent_holds() -> None:
    make_pool(slots=3)
    for _ in range(12):
        claim = ask()
        elapse(claim, 60)
        let_go(claim)
    for seconds in (10, 20, 30):
        elapse(ask(), seconds)
    first, second = ask(), ask()
    assert first.wait is not None
    assert second.wait is not None
    assert first.wait.start is not None
    assert second.wait.start is not None
    assert 25 < first.wait.start[0] < 35 < second.wait.start[0] < 45
    assert first.wait.start_note == ""


def test_a_wait_without_an_estimate_says_why() -> None:
    make_pool()
    ask()
    claim = ask()
    assert claim.wait is not None
    assert (claim.wait.start, claim.wait.start_note) == (
        None,
        "no estimate: fewer than 8 claims ended recently",
    )
    ghost = ask("ghost")
    assert ghost.wait is not None
    assert (ghost.wait.start, ghost.wait.start_note) == (None, "when it is created")


def test_a_claim_behind_a_strict_head_names_it() -> None:
    make_pool(slots=2)
    holder = ask(), ask()
    big = ask(size=2)
    age(big, STRICT_AFTER + 1)
    small = ask()
    let_go(holder[0])
    serve()
    assert why(small)[0] == "behind_head"
    assert f"Claim {big.id} goes first, and this claim may not pass it" in why(small)[1]


def test_a_bound_claim_has_no_wait_reason() -> None:
    make_pool()
    assert view_claim(ask().id, explain=True).wait is None
    with pytest.raises(NotFound):
        view_claim(404, explain=True)


def test_claims_are_listed_by_filter_newest_first_and_by_page() -> None:
    pool = make_pool(slots=2)
    other = make_pool("annex", slots=["any"])
    mine = [ask(owner="pod:1"), ask(by="ben"), ask(owner="pod:2")]
    task = ask("annex", task="plan", workspace="net")
    ghost = ask("ghost")
    let_go(mine[0])
    ids = lambda **f: [claim.id for claim in list_claims(ClaimFilter(**f))]  # noqa: E731
    assert ids() == [ghost.id, task.id, *[c.id for c in reversed(mine)]]
    assert ids(visible=frozenset({pool.pk})) == [c.id for c in reversed(mine)], (
        "what has no pool yet needs the right to all"
    )
    assert ids(pool_id=other.pk) == [task.id]
    assert ids(states=["ended"]) == [mine[0].id]
    assert ids(outcomes=["released"], owner="pod:1") == [mine[0].id]
    assert ids(requested_by="ben") == [mine[1].id]
    assert ids(workspace="net", kind="plan", steps=["plan"]) == [task.id]
    assert ids(member_id=mine[1].slots[0].member_id) == [mine[1].id]
    assert ids(text="od:2") == [mine[2].id]
    assert ids(text=str(task.id)) == [task.id]
    assert [c.id for c in list_claims(ClaimFilter(), before=mine[2].id, limit=1)] == [mine[1].id]
    assert len(list_claims(ClaimFilter(states=["bound"]))) == 2
    assert sql("SELECT current_setting('enable_seqscan')") == [("off",)], (
        "a list leaves the connection as it was"
    )
