"""The tab Ports of a pool: port map, differences outside, forecast, and calls to the provider."""

import re
from collections.abc import Iterator

import psycopg
import pytest
from django.test import Client

from claims.lifecycle.release import release_claim
from claims.models import Claim
from pools.models import Member
from project.kernel.db import sql
from project.kernel.models import Event, Operation
from project.kernel.outbox.operations import Throttled, perform_due
from slots.doctor.checks import find_slot_drift
from slots.models import Slot
from slots.pages import port_map
from slots.sync.drift import describe_found, list_drift
from tests.dashboard.helpers import chief, claim, make_pool, person
from tests.dashboard.plain_browser import browser_as, browser_of, get, off, post
from tests.dashboard.ports_world import (
    drift_ports,
    hold_ports,
    make_ports,
    port,
    sample_rise,
    set_budget,
    with_crane,
    work,
    world,
)
from tests.pools.providers.fake_providers import fresh

pytestmark = pytest.mark.django_db(transaction=True)

TAB = "/pools/game-eu/?tab=ports"


@pytest.fixture(autouse=True)
def _crane() -> Iterator[None]:
    fresh()
    with with_crane:
        yield


def cell(text: str, slot: Slot) -> str:
    """The cell of a slot: its class and its title."""
    found = re.search(rf'<i role="gridcell" id="s{slot.pk}" class="(\w+)" title="([^"]*)"', text)
    assert found is not None, slot
    return f"{found[1]}: {found[2]}"


def rows_of(text: str) -> list[str]:
    """The rows of the table of differences, as text."""
    table = re.search(r'<table class="stack drifts">(.*?)</table>', text)
    rows = re.findall(r"<tr data-key.*?</tr>", table[1]) if table else []
    return [re.sub(r"\s+", " ", re.sub(r"<[^>]+>", " ", row)).strip() for row in rows]


def test_tab_exists_for_pools_of_ports_only() -> None:
    make_ports()
    make_pool()
    client = browser_of(chief())
    assert "?tab=ports" in get(client, "/pools/game-eu/")
    assert "?tab=ports" not in get(client, "/pools/env/")
    assert "port-grid" not in get(client, "/pools/env/?tab=ports")


def test_cell_shows_state_claim_and_health() -> None:
    pool = make_ports(members=1)
    first, second = hold_ports(pool, 1, 2)
    found = drift_ports(pool)
    release_claim(
        claim_id=first, generation=Claim.objects.values_list("generation", flat=True).get(pk=first)
    )
    text = get(browser_of(chief()), TAB)
    assert cell(text, found["missing"]) == f"draining: 30000 draining after {first} relay-1"
    assert cell(text, found["problem"]) == (
        f"problem: 30001/UDP {second} relay-2, cannot serve: certificate cert-9 does not exist"
    )
    assert cell(text, found["reserved"]) == (
        f"reserved: 30002/UDP {second} relay-2, target not healthy yet"
    )
    assert cell(text, found["orphan"]) == "orphan: 30019 orphan: a listener without a claim"
    assert cell(text, found["foreign"]) == "foreign: 30018 foreign listener in this place"
    assert cell(text, port(pool, 1, 30010)) == "idle: 30010 open"


def test_problem_that_ends_with_a_full_stop_gets_no_second_one() -> None:
    found = describe_found("problem", 4, {"problem": "AWS fails at CreateListener. It is tired."})
    assert found.endswith("cannot serve it: AWS fails at CreateListener. It is tired")


def test_healthy_port_is_running_and_names_its_claim() -> None:
    pool = make_ports(members=1)
    (held,) = hold_ports(pool, 1)
    text = get(browser_of(chief()), TAB)
    assert cell(text, port(pool, 1, 30000)) == f"running: 30000/UDP serving {held} relay-1"
    assert text.count(f'data-c="{held}"') == 1


def test_used_part_of_the_quota_counts_claims_orphans_and_foreign_listeners() -> None:
    pool = make_ports(members=1, quota=12, foreign=[30007, 443])
    hold_ports(pool, 3)
    drift_ports(pool)
    text = get(browser_of(chief()), TAB)
    # 3 of claims, an orphan, a foreign listener in the place of a slot, two of the configuration.
    title = "7 listeners of a quota of 12: held, draining, orphaned and foreign ones"
    assert re.search(rf'title="{title}">\s*7/12', text)
    assert ">Listeners</span>" in text
    assert 'title="30007 is configured as foreign, and uses the quota"' in text


def test_lanes_and_segments_have_rows_and_ranges_of_their_own() -> None:
    pool = make_ports(members=2, shared=False, protocols=["tcp", "udp"], segment=5)
    hold_ports(pool, 1)
    text = get(browser_of(chief()), TAB)
    assert len(re.findall(r'<div role="row"', text)) == 4
    assert re.findall(r"<small>(\w+)</small>", text) == ["tcp", "udp"] * 2
    assert 'title="30005–30009/TCP open"' in text


def test_findings_of_map_table_overview_and_doctor_are_the_same() -> None:
    pool = make_ports()
    hold_ports(pool, 5)
    found = drift_ports(pool)
    client = browser_of(chief())
    text = get(client, TAB)
    drawn = {
        int(number): name
        for number, name in re.findall(r'id="s(\d+)" class="(\w+)"', text)
        if name in port_map.FINDINGS
    }
    listed = {each.slot_id: each.kind for each in list_drift() if each.slot_id}
    assert drawn == listed == {s.pk: kind for kind, s in found.items() if kind != "reserved"}
    assert [row.split()[0] for row in rows_of(text)] == [
        "missing", "problem", "orphan", "orphan", "foreign",
    ]  # fmt: skip
    assert len(list(find_slot_drift())) == 4
    assert "<b>5</b>" in get(client, "/")
    assert 'href="/pools/game-eu/?tab=ports" data-attention' in get(client, "/")


def test_table_says_what_happens_to_each_difference() -> None:
    pool = make_ports(members=1)
    (held,) = hold_ports(pool, 3)
    drift_ports(pool)
    rows = rows_of(get(browser_of(chief()), TAB))
    for text in (
        f"missing game-eu-1 port 30000 Claim {held} holds the slot, and nothing is in its place",
        "Repair creates the object again, in the same place. Repair… Quarantine…",
        "Repair removes the object, and so does the next change of the member. Repair… Quarantine…",
        "nlb-of-a-newer-copy Exists outside without a member",
        "Berth changes no foreign object. Remove it there, or quarantine the slot.",
    ):
        assert any(text in row for row in rows), (text, rows)
    foreign = next(row for row in rows if row.startswith("foreign"))
    assert "Repair…" not in foreign


def test_filter_leaves_out_load_balancers_without_findings() -> None:
    pool = make_ports()
    hold_ports(pool, 3)
    client = browser_of(chief())
    assert "No load balancer has findings." in get(client, f"{TAB}&only=findings")
    world().listeners.clear()
    work(pool)
    text = get(client, f"{TAB}&only=findings")
    assert re.findall(r"<b[^>]*>(game-eu-\d)</b>", text) == ["game-eu-1"]
    assert "2 load balancers without findings not shown" in text


def test_large_map_is_folded_and_opens_one_load_balancer(monkeypatch: pytest.MonkeyPatch) -> None:
    pool = make_ports(members=3)
    monkeypatch.setattr(port_map, "MOST_CELLS", 60)
    client = browser_of(chief())
    assert len(re.findall("<i role=", get(client, TAB))) == 60
    monkeypatch.setattr(port_map, "MOST_CELLS", 59)
    folded = get(client, TAB)
    assert "<i role=" not in folded
    assert len(re.findall('aria-expanded="false"> <b>game-eu-', folded)) == 3
    opened = get(client, f"{TAB}&lb=game-eu-2")
    assert len(re.findall("<i role=", opened)) == 20
    assert re.findall('aria-expanded="true"> <b>([^<]+)', opened) == ["game-eu-2"]
    chosen = get(client, f"{TAB}&port={port(pool, 3, 30004).pk}")
    assert re.findall('aria-expanded="true"> <b>([^<]+)', chosen) == ["game-eu-3"]
    assert "game-eu-3 · 30004" in chosen


def test_numbers_that_fit_no_axis_are_wrapped_into_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    make_ports(members=1)
    monkeypatch.setattr(port_map, "PER_LINE", 8)
    text = get(browser_of(chief()), TAB)
    assert re.findall(r"<small>(\d+)</small>", text) == ["30000", "30008", "30016"]


def count_queries(client: Client, path: str, monkeypatch: pytest.MonkeyPatch) -> int:
    """Queries of Django and named statements."""
    calls = []
    run, execute = sql.execute, psycopg.Cursor.execute
    with monkeypatch.context() as patch:
        patch.setattr(sql, "execute", lambda *args: calls.append(args) or run(*args))
        patch.setattr(
            psycopg.Cursor,
            "execute",
            lambda self, *args, **more: calls.append(args) or execute(self, *args, **more),
        )
        get(client, path)
    return len(calls)


def test_number_of_queries_does_not_depend_on_the_size(monkeypatch: pytest.MonkeyPatch) -> None:
    client, counts = browser_of(chief()), []
    for members, claims in ((1, 1), (8, 10)):
        pool = make_ports(name=f"lab-{members}", members=members)
        hold_ports(pool, *[3] * claims)
        drift_ports(pool)
        path = f"/pools/{pool.name}/?tab=ports"
        # The smallest count: a cache may end between two requests.
        counts.append(min(count_queries(client, path, monkeypatch) for _ in range(3)))
    assert counts[0] == counts[1] > 20


def test_panel_shows_claim_listener_target_and_times() -> None:
    pool = make_ports(members=1)
    (held,) = hold_ports(pool, 1)
    slot = port(pool, 1, 30000)
    text = get(browser_of(chief()), f"/pools/game-eu/ports/{slot.pk}/", **{"X-Part": "panel"})
    for part in (
        "game-eu-1 · 30000/UDP", f'href="/claims/{held}/"', "relay-1",
        f"generation {slot.generation}", "10.4.31.9:7777", "<dd>healthy</dd>", "listener-30000",
        "Held since", "Present since",
    ):  # fmt: skip
        assert part in text, part


def test_panel_of_a_hidden_pool_is_empty_for_others() -> None:
    pool = make_ports(members=1)
    slot = port(pool, 1, 30000)
    other = make_pool()
    client = browser_of(person("vera", "viewer", pool=other))
    assert client.get(f"/pools/game-eu/ports/{slot.pk}/").status_code == 404
    shown = get(client, f"/pools/env/ports/{slot.pk}/")
    assert "game-eu" not in shown


def test_repair_needs_an_operator_and_a_reason() -> None:
    pool = make_ports(members=1)
    hold_ports(pool, 3)
    slot = drift_ports(pool)["missing"]
    path = f"/slots/{slot.pk}/repair/"
    viewer = browser_as("viewer", pool)
    assert off(get(viewer, TAB), "Repair…") == "This needs the role operator."
    assert viewer.post(path, {"reason": "now"}).status_code == 403
    operator = browser_as("operator", pool)
    assert off(get(operator, TAB), "Repair…") is None
    assert post(operator, path).status_code == 422
    assert not Event.objects.filter(verb="repair").exists()
    assert post(operator, path, reason="players are thrown out").status_code == 204
    event = Event.objects.get(verb="repair")
    assert (event.slot_id, event.reason) == (slot.pk, "players are thrown out")
    perform_due("crane")
    assert "missing" not in [each.kind for each in list_drift()]


def test_foreign_object_has_no_repair() -> None:
    pool = make_ports(members=1)
    hold_ports(pool, 3)
    slot = drift_ports(pool)["foreign"]
    client = browser_of(chief())
    assert "Berth changes no foreign object." in get(client, f"/slots/{slot.pk}/repair/")
    assert post(client, f"/slots/{slot.pk}/repair/", reason="now").status_code == 409


def test_quarantine_is_ordered_marked_on_the_map_and_ended() -> None:
    pool = make_ports(members=1)
    slot = port(pool, 1, 30005)
    viewer, operator = browser_as("viewer", pool), browser_as("operator", pool)
    path = f"/slots/{slot.pk}/quarantine/"
    assert viewer.post(path, {"reason": "now"}).status_code == 403
    assert post(operator, path).status_code == 422
    assert post(operator, path, reason="its socket hangs").status_code == 204
    text = get(viewer, TAB)
    assert cell(text, slot) == "quarantine: 30005 in quarantine: its socket hangs"
    assert "game-eu-1 port 30005 its socket hangs" in " ".join(rows_of(text))
    assert off(text, "End quarantine…") == "This needs the role operator."
    assert post(operator, f"/slots/{slot.pk}/end-quarantine/").status_code == 204
    assert cell(get(viewer, TAB), slot) == "idle: 30005 open"


def test_object_without_a_member_is_adopted_or_deleted_with_its_name_typed() -> None:
    pool = make_ports(members=1)
    stray = Member.objects.latest("pk").pk + 5000
    world().things[f"game-eu/{stray}"] = "thing-of-a-copy"
    work(pool)
    operator = browser_as("operator", pool)
    text = get(operator, TAB)
    assert off(text, "Adopt…") is None
    path = f"/pools/game-eu/strays/{stray}"
    assert f"adopted-{stray}" in get(operator, f"{path}/adopt/")
    wrong = post(operator, f"{path}/delete/", reason="unused", typed="another-thing")
    assert wrong.status_code == 422
    done = post(operator, f"{path}/delete/", reason="unused", typed="thing-of-a-copy")
    assert done.status_code == 204
    assert off(get(operator, TAB), "Keep…") is None
    assert post(operator, f"{path}/adopt/", reason="no").status_code == 409
    assert post(operator, f"{path}/keep/").status_code == 204
    assert post(operator, f"{path}/adopt/", reason="in use").status_code == 204
    assert Member.objects.get(pk=stray).state == "creating"


def test_sweep_needs_an_operator_and_is_recorded() -> None:
    pool = make_ports(members=1)
    assert off(get(browser_as("viewer", pool), TAB), "Sweep") == "This needs the role operator."
    before = pool.observed_at
    answer = post(browser_as("operator", pool), "/pools/game-eu/sweep/", reason="console says so")
    assert answer.status_code == 204
    pool.refresh_from_db()
    assert before is not None
    assert pool.observed_at is not None
    assert pool.observed_at < before
    assert Event.objects.get(verb="sweep").reason == "console says so"


def test_forecast_is_in_the_tab_and_in_the_api() -> None:
    pool = make_ports(members=1)
    client = browser_of(chief())
    assert "no forecast: fewer than 30 min of samples" in get(client, TAB)
    hold_ports(pool, 12)
    sample_rise(pool, used=12, slots=20)
    text = get(client, TAB)
    assert 'title="2 ports per hour net, from samples of 6 h">full in about 4 h</span>' in text, (
        re.findall("full in[^<]*", text)
    )
    found = client.get("/api/v1/pools/game-eu/").json()["forecast"]
    assert (found["kind"], found["text"]) == ("fills", "full in about 4 h")
    assert found["seconds"] == pytest.approx(4 * 3600, rel=0.05)
    assert found["rate"] == pytest.approx(2, rel=0.05)


def test_calls_show_the_budget_and_the_queued_changes() -> None:
    pool = make_ports(members=2)
    client = browser_of(chief())
    assert "This provider has no call budget." in get(client, TAB)
    assert "No change is queued." in get(client, TAB)
    set_budget(calls=8)
    claim(pool.name, kind="port", owner="relay", size=2)
    text = get(client, TAB)
    assert "4 per second at most" in text
    assert re.search(r"1[2-9] of 20 calls left in the budget “crane lab”, 8 spent today", text)
    assert "Throttled today: 0." in text
    assert "1 change queued, 1 due." in text
    world().errors.append(Throttled("slow down", retry_after=60))
    perform_due("crane")
    assert Operation.objects.filter(done_at=None, error_code="throttled").count() == 1
    text = get(client, TAB)
    assert "1 change queued, 0 due, 1 waiting after a throttled call." in text
    assert re.search(r"Throttled today: 1, last\s+<time", text)
