"""When a claim of ports is allocated, programmed and ready, since when, and why not."""

import asyncio
import json
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
import pytest_asyncio
from asgiref.sync import sync_to_async
from django.contrib.auth.models import User
from django.db import connection, connections
from hypothesis import given
from hypothesis import strategies as st

from claims.allocation.api.long_poll import READY, READY_CLAIMS, find_changed
from claims.allocation.claim_view import ClaimView
from claims.models import BackendTarget
from claims.ports import ports_sql
from claims.ports.backends import BackendRequest, set_backend
from claims.ports.conditions import (
    Condition,
    PortConditions,
    PortFacts,
    join_conditions,
    judge_port,
)
from pools.access.tokens import create_token
from pools.roles.services import create_grant
from project.kernel.db.direct_connection import connect_direct_async
from project.kernel.models import Event
from slots.models import Slot
from tests.api.conftest import Callers
from tests.claims.allocation.api.test_long_poll import Server, until_watched
from tests.claims.helpers import again, ask, let_go, make_pool
from tests.claims.ports.quay import PROVIDERS, Quay, QuayProvider, make_quay, work
from tests.claims.ports.test_backends import configure

NOON = datetime(2026, 11, 20, 12, tzinfo=UTC)
LATER = NOON + timedelta(minutes=1)
TARGET = "10.0.0.7:80"


@pytest.fixture(autouse=True)
def _world(settings: Any) -> None:
    settings.BERTH_PROVIDERS = PROVIDERS
    QuayProvider.world = Quay()


def facts(
    observed: dict[str, object] | None, target: str = TARGET, withheld: str = ""
) -> PortFacts:
    since = dict.fromkeys(("presence", "target", "problem"), NOON) | {"health": LATER}
    return PortFacts(NOON, target, withheld, observed, since)


SEEN: dict[str, object] = {"presence": "present", "target": TARGET}


@pytest.mark.parametrize(
    ("given", "programmed", "ready"),
    [
        (facts(None), "The listener is being created", "The listener is being created"),
        (
            facts({"presence": "missing"}),
            "The listener is missing outside",
            "The listener is missing outside",
        ),
        (facts({**SEEN, "health": "healthy"}), "", ""),
        (facts({**SEEN, "health": "unchecked"}), "", ""),
        (facts({**SEEN, "health": "initial"}), "", "The health check has not passed yet"),
        (facts({**SEEN, "health": "unhealthy"}), "", "The health check of the backend fails"),
        (facts({**SEEN, "health": "draining"}), "", "The backend is being removed"),
        (facts(SEEN), "", "The provider does not report its health"),
        (facts({"presence": "present"}, target=""), "", "No backend is set"),
        (
            facts({**SEEN, "health": "healthy"}, target=""),
            "A former backend is registered",
            "A former backend is registered",
        ),
        (
            facts({**SEEN, "target": "10.0.0.6:80", "health": "healthy"}),
            "The backend is not registered yet",
            "The backend is not registered yet",
        ),
    ],
)
def test_port_is_judged_by_what_its_provider_sees(
    given: PortFacts, programmed: str, ready: str
) -> None:
    found = judge_port(given)
    assert (found.programmed.reason, found.ready.reason) == (programmed, ready)
    assert (found.programmed.is_met, found.ready.is_met) == (not programmed, not ready)
    assert not found.ready.is_failed


@pytest.mark.parametrize(
    "given",
    [
        facts({**SEEN, "health": "healthy", "problem": "no certificate"}),
        facts({"presence": "foreign"}),
        facts({"presence": "present"}, withheld="10.0.0.7:80 is also the backend of claim 5"),
    ],
)
def test_port_that_cannot_work_has_failed(given: PortFacts) -> None:
    found = judge_port(given)
    assert found.programmed.is_failed and found.ready.is_failed
    assert not found.ready.is_met


def test_claim_is_ready_since_its_last_port_is() -> None:
    early, late = Condition(True, NOON), Condition(True, LATER)
    wrong = Condition(False, NOON, "no certificate", is_failed=True)
    slow = Condition(False, LATER, "The health check has not passed yet")
    programmed, ready = join_conditions(
        [("80/TCP", PortConditions(early, early)), ("81/TCP", PortConditions(late, late))]
    )
    assert (programmed, ready) == (late, late)
    _, ready = join_conditions(
        [("80/TCP", PortConditions(early, slow)), ("81/TCP", PortConditions(wrong, wrong))]
    )
    assert ready.reason == "81/TCP: no certificate, and 1 more"
    assert ready.is_failed


attributes = st.fixed_dictionaries(
    {},
    optional={
        "presence": st.sampled_from(["present", "missing", "foreign"]),
        "target": st.sampled_from([TARGET, "10.0.0.6:80", ""]),
        "health": st.sampled_from(["healthy", "unhealthy", "initial", "unchecked", "draining"]),
        "problem": st.sampled_from(["", "no certificate"]),
        "changed": st.just("protocol udp in place of tcp"),
        "claim": st.sampled_from([1, 2]),
    },
)


@pytest.mark.django_db
@given(attributes)
def test_long_poll_calls_the_same_ports_ready(observed: dict[str, object]) -> None:
    """READY_CLAIMS decides in SQL what judge_port decides in Python."""
    is_mine = observed.get("claim") == 1
    found = judge_port(facts(observed if is_mine else None)).ready.is_met
    text = READY_CLAIMS.replace(
        "claims_claim c", "(SELECT 1 AS id, 'bound' AS state, %s::jsonb AS backend) c"
    )
    text = text.replace(
        "slots_slot s", "(SELECT 1 AS claim_id, 0 AS ordinal, %s::jsonb AS observed) s"
    )
    # The subqueries come before the ids of the claims.
    parts = text.split("ANY (%s::bigint[])")
    text = "ANY (ARRAY[1]::bigint[])".join(parts)
    with connection.cursor() as cursor:
        cursor.execute(text, [json.dumps({"targets": [TARGET]}), json.dumps(observed)])
        assert bool(cursor.fetchall()) == found


def is_ready_for_long_poll(claim: ClaimView) -> bool:
    async def find() -> bool:
        async with await connect_direct_async("test") as connection:
            return bool(await find_changed(connection, [(claim.id, frozenset({READY}))]))

    return asyncio.run(find())


@pytest.mark.usefixtures("committed_tables")
def test_long_poll_calls_no_withheld_port_ready() -> None:
    """The provider has not carried out the order yet, so its last report shows the target."""
    pool = make_quay()
    first, second = ask("lb", ports="80/TCP"), ask("lb", ports="80/TCP")
    for claim, ip in ((first, "10.0.0.7"), (second, "10.0.1.7")):
        set_backend(claim_id=claim.id, generation=claim.generation, backend=BackendRequest(ip))
    work(pool)
    assert again(first).is_ready and is_ready_for_long_poll(first)
    configure(pool, {"networks": ["10.0.1.0/24"], "ports": "1-65535"})
    assert not again(first).is_ready and not is_ready_for_long_poll(first)
    assert again(second).is_ready and is_ready_for_long_poll(second)


@pytest.mark.usefixtures("committed_tables")
def test_long_poll_calls_no_port_with_the_target_of_another_claim_ready() -> None:
    pool = make_quay()
    first, second = ask("lb", ports="80/TCP"), ask("lb", ports="80/TCP")
    route(second)
    work(pool)
    BackendTarget.objects.update(claim_id=first.id)
    assert not again(second).is_ready and not is_ready_for_long_poll(second)


def route(claim: ClaimView) -> None:
    set_backend(claim_id=claim.id, generation=claim.generation, backend=BackendRequest("10.0.0.7"))


def conditions(claim: ClaimView) -> dict[str, tuple[bool, str]]:
    return {each["type"]: (each["is_met"], each["reason"]) for each in again(claim).conditions}


@pytest.mark.usefixtures("committed_tables")
def test_conditions_follow_the_listeners_of_the_claim() -> None:
    pool = make_quay()
    world = QuayProvider.world
    claim = ask("lb", ports="80/TCP,53/UDP")
    making = "80/TCP on lb0 30000: The listener is being created, and 1 more"
    assert conditions(claim) == {
        "allocated": (True, ""),
        "programmed": (False, making),
        "ready": (False, making),
    }
    work()
    none = "80/TCP on lb0 30000: No backend is set, and 1 more"
    assert conditions(claim)["programmed"] == (True, "")
    assert conditions(claim)["ready"] == (False, none)
    world.health = "initial"
    route(claim)
    work()
    assert not again(claim).is_ready
    since = again(claim).conditions[1]["since"]
    world.health = "healthy"
    work(pool)
    claim = again(claim)
    assert claim.is_ready
    assert claim.conditions[1]["since"] == since, "health does not change what is programmed"
    assert (claim.conditions[2]["since"] or "") > (since or "")
    world.problems[30000] = "the certificate has expired"
    work(pool)
    failed = again(claim).conditions[1]
    assert failed["is_failed"]
    assert failed["reason"] == "53/UDP on lb0 30000: the certificate has expired, and 1 more" or (
        failed["reason"].startswith("80/TCP on lb0 30000: the certificate has expired")
    )
    words = [
        event.data["word"]
        for event in Event.objects.filter(verb="observe", claim_id=claim.id).order_by("id")
        if event.data["lane"] == "tcp"
    ]
    assert words == ["present", "initial", "healthy", "failed"]


@pytest.mark.usefixtures("committed_tables")
def test_ports_show_address_listener_and_health() -> None:
    make_quay()
    claim = ask("lb", ports="80/TCP,53/UDP")
    route(claim)
    work()
    tcp, udp = again(claim).ports
    assert {k: v for k, v in tcp.items() if k != "conditions"} == {
        "port": 80,
        "protocol": "TCP",
        "pool": "lb",
        "member": "lb0",
        "number": 30000,
        "end": None,
        "address": "lb0.lb.example:30000",
        "addresses": ["lb0.lb.example:30000"],
        "listener": "tcp-30000",
        "target": "10.0.0.7:80",
        "health": "healthy",
        "ready": True,
    }
    assert (udp["port"], udp["protocol"], udp["target"]) == (53, "UDP", "10.0.0.7:53")


@pytest.mark.usefixtures("committed_tables")
def test_segments_and_ipv6_addresses_are_shown_in_full() -> None:
    make_quay(slots={"ports": "30000-30099", "protocols": ["tcp"], "segment": 10})
    claim = ask("lb", ports="80/TCP")
    work()
    slot = claim.slots[0]
    with connection.cursor() as cursor:
        cursor.execute(
            "UPDATE pools_member SET addresses = %s WHERE id = %s",
            [json.dumps(["2001:db8::5", "lb.example"]), slot.member_id],
        )
    (port,) = again(claim).ports
    assert (port["number"], port["end"]) == (30000, 30009)
    assert port["address"] == "[2001:db8::5]:30000"
    assert port["addresses"] == ["[2001:db8::5]:30000", "lb.example:30000"]


@pytest.mark.usefixtures("committed_tables")
def test_next_holder_of_a_port_does_not_inherit_what_was_seen() -> None:
    make_quay(slots={"ports": "30000-30001", "quota": 1, "shared": True})
    first = ask("lb", ports="80/TCP")
    route(first)
    work()
    assert again(first).is_ready
    seen = Slot.objects.get(number=30000).observed
    let_go(first)
    work()
    assert Slot.objects.get(number=30000).observed == {}
    Slot.objects.filter(number=30000).update(observed=seen)  # the provider said no more
    second = ask("lb", ports="80/TCP")
    assert second.state == "bound"
    assert second.ports[0]["listener"] is None
    route(second)
    assert not again(second).is_ready
    work()
    assert again(second).is_ready


@pytest.mark.usefixtures("committed_tables")
def test_a_slow_look_does_not_undo_what_a_sync_has_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """Red without the comparison with the start of the look: the port was not ready any more."""
    pool = make_quay()
    claim = ask("lb", ports="80/TCP")
    work()
    look = QuayProvider.look

    def look_slowly(self: QuayProvider, *given: Any) -> Any:
        found = look(self, *given)
        route(claim)
        work()
        return found

    monkeypatch.setattr(QuayProvider, "look", look_slowly)
    work(pool)
    assert again(claim).is_ready


@pytest.mark.usefixtures("committed_tables")
def test_waiting_claim_shows_its_ports_without_addresses() -> None:
    make_quay(slots={"ports": "30000-30001", "protocols": ["tcp", "udp"], "quota": 2})
    ask("lb", kind="tcp_udp")
    claim = again(ask("lb", ports="80/TCP,53/UDP"))
    assert [(p["port"], p["protocol"], p["address"]) for p in claim.ports] == [
        (80, "TCP", None),
        (53, "UDP", None),
    ]
    assert [each["is_met"] for each in claim.conditions] == [False, False, False]


@pytest.mark.usefixtures("tables")
def test_claims_without_ports_cost_no_further_statement(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(name: str, values: object, **more: object) -> None:
        raise AssertionError(f"{name} was read for a claim without ports")

    make_pool("lab", slots=2)
    monkeypatch.setattr(ports_sql.statements, "fetch_rows", refuse)
    assert again(ask("lab")).ports == []
    let_go(ask("lab"))


@pytest.mark.usefixtures("committed_tables")
def test_api_sets_the_backend_and_shows_its_faults(caller: Callers) -> None:
    make_quay()
    holder = caller("claimant")
    made = holder.post("claims/", {"pool": "lb", "ports": "80/TCP,53/UDP"})
    assert made.status == 201
    assert [port["port"] for port in made.body["ports"]] == [80, 53]
    path, generation = f"claims/{made.body['id']}/backend/", made.body["generation"]
    for body, field in [
        ({"generation": generation}, "ip"),
        ({"generation": generation, "ip": 7}, "ip"),
        ({"generation": generation, "ip": "10.0.0"}, "ip"),
        ({"generation": generation, "ip": "10.0.0.7", "port": 0}, "port"),
        ({"generation": generation, "ip": "10.0.0.7", "ports": [1, 70000]}, "ports[1]"),
        ({"generation": generation, "ip": "10.0.0.7", "port": 1, "ports": [1, 2]}, "ports"),
        ({"generation": generation, "ip": None, "port": 1}, "port"),
        ({"ip": "10.0.0.7"}, "generation"),
    ]:
        answer = holder("PUT", path, body)
        assert answer.status == 400
        assert [fault["field"] for fault in answer.body["errors"]] == [field]
    refused = holder("PUT", path, {"generation": generation, "ip": "127.0.0.1"})
    assert (refused.status, refused.body["code"]) == (422, "backend_refused")
    answer = holder("PUT", path, {"generation": generation, "ip": "10.0.0.7"})
    assert (answer.status, answer.body["backend"]) == (200, {"ip": "10.0.0.7", "ports": [80, 53]})
    work()
    shown = holder.get(f"claims/{made.body['id']}/").body
    assert [each["is_met"] for each in shown["conditions"]] == [True, True, True]
    other = caller("claimant")
    assert other("PUT", path, {"generation": generation, "ip": None}).status == 403
    operator = caller("operator")
    assert operator("PUT", path, {"generation": generation, "ip": None}).body["backend"] is None


@pytest_asyncio.fixture
async def world(settings: Any, transactional_db: None) -> AsyncIterator[tuple[Server, ClaimView]]:
    settings.BERTH_WEB_THREADS = 1

    def prepare() -> tuple[str, ClaimView]:
        make_quay()
        user = User.objects.create_user("ana")
        create_grant(role="claimant", user=user)
        claim = ask("lb", ports="80/TCP")
        route(claim)
        return create_token(user=user, name="test")[1], claim

    secret, claim = await sync_to_async(prepare)()
    server = Server(secret)
    yield server, claim
    await server.close()
    await sync_to_async(connections.close_all)()


async def test_long_poll_ends_when_the_claim_is_ready(world: Any) -> None:
    server, claim = world
    path = f"claims/{claim.id}/?until=ready&wait=30"
    poll = asyncio.create_task(server.get(path))
    await until_watched(1)
    await sync_to_async(work)()
    status, body = await asyncio.wait_for(poll, 20)
    assert status == 200
    assert body["conditions"][-1]["is_met"]
    _, body = await server.get(path)
    assert body["ports"][0]["ready"], "a claim that is ready is answered at once"
