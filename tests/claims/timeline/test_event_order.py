"""The event log is in transaction order; the events of one slot are in generation order."""

import pytest

from project.kernel.events.log import START, read_events
from tests.claims.helpers import ask, let_go, make_pool
from tests.slots.concurrent_actors import Gate

pytestmark = pytest.mark.usefixtures("tables")


@pytest.mark.usefixtures("committed_tables")
def test_a_bind_may_be_logged_before_the_release_that_freed_its_slot(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The transaction of the bind begins to write first, then the slot is released, then the bind
    finds it.
    """
    make_pool(members=[{"name": "a", "labels": {"zone": "eu"}}])
    holder = ask()
    gate = Gate().before(monkeypatch, "claims.allocation.create.bind_new_claim")
    next_one = gate.stops(lambda: ask(selector={"zone": "eu"}))
    let_go(holder)
    gate.open()
    claim = next_one.result()
    assert claim.state == "bound"
    slot = claim.slots[0].id
    events = [event for event in read_events(START, 1000)[0] if event.slot_id == slot]
    assert [(event.verb, event.claim_id) for event in events] == [
        ("create", holder.id),
        ("bind", claim.id),
        ("release", holder.id),
    ]
    assert [event.generation for event in events] == [
        holder.generation,
        claim.generation,
        holder.generation,
    ]
    in_order = sorted(events, key=lambda event: event.generation or 0)
    assert [event.verb for event in in_order] == ["create", "release", "bind"], (
        "the same generation keeps the order of the log"
    )
