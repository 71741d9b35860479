"""The driver of the sample works against a real web process over HTTP."""

import os
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Collection, Iterator
from contextlib import closing
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from random import Random
from typing import Any

import pytest
from django.utils import timezone

from claims.lifecycle.cancel import force_release
from claims.lifecycle.pool_deletion import delete_pool
from claims.models import Claim
from claims.scaling import scaling_sql
from claims.scaling.orders import grow_pool
from pools.lifecycle.selectors import config_of, spec_of
from pools.lifecycle.services import update_pool
from pools.models import Member, Pool
from project.kernel.models import Event
from project.sample.client import SampleClient, SampleUnauthorised
from project.sample.driver import Driver
from project.sample.rollouts import EVERY, FIRST, Rollouts
from project.sample.rooms import Game, Rooms
from project.sample.scenario import ARCADE, BY_POOL, HARBOUR, ROOMS, RUNNERS, TEAMS
from project.sample.services import load_sample, remove_sample, site_folder
from slots.members.services import record_sync_result

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def token(site: str, tmp_path: Path, settings: Any) -> Iterator[str]:
    settings.BERTH_HOME = tmp_path
    load_sample()
    yield (tmp_path / "sample-token").read_text().strip()
    shutil.rmtree(site_folder(), ignore_errors=True)


@pytest.fixture
def driver(site: str, token: str, tmp_path: Path) -> Iterator[Callable[[], Driver]]:
    """Makes one, as if it had just started."""
    clients: list[SampleClient] = []

    def start() -> Driver:
        clients.append(SampleClient(site, token))
        clients.append(SampleClient(site, (tmp_path / "sample-approver-token").read_text().strip()))
        made = Driver(*clients[-2:], chance=Random(1))
        made.user = "sample"
        return made

    yield start
    for client in clients:
        client.close()


def test_the_api_accepts_every_request_of_every_crew(
    driver: Callable[[], Driver],
) -> None:
    at_work = driver()
    for team in TEAMS:
        for _ in range(15):
            at_work.create_claim(team)
    made = list(Claim.objects.all())
    assert len(made) == 15 * len(TEAMS)
    assert {claim.state for claim in made} <= {"bound", "waiting"}
    assert all(claim.acknowledged_at for claim in made if claim.state == "bound")
    assert {claim.requested_by for claim in made} == {"sample"}


def test_the_api_accepts_every_task_of_the_planner(
    driver: Callable[[], Driver], capsys: pytest.CaptureFixture[str]
) -> None:
    at_work = driver()
    assert at_work.planner is not None
    for _ in range(25):
        at_work.planner.create_claim()
    assert Claim.objects.filter(pool__name=HARBOUR).count() == 25
    assert capsys.readouterr().out == ""
    again = driver()
    again.read_claims()
    assert again.planner is not None and again.planner.known == at_work.planner.known


def test_a_restarted_driver_finds_and_releases_its_claims(
    driver: Callable[[], Driver],
) -> None:
    before = driver()
    for _ in range(5):
        before.create_claim(BY_POOL["env-test"])
    after = driver()
    after.read_claims()
    assert after.known == before.known
    held = [claim for claim, state in after.known.items() if state == "bound"]
    for claim in held:
        after.send_heartbeat(claim, 40.0)
        after.release(claim)
    assert set(Claim.objects.filter(pk__in=held).values_list("outcome", flat=True)) == {"released"}


def test_a_claim_that_a_person_releases_is_forgotten(driver: Callable[[], Driver]) -> None:
    at_work = driver()
    at_work.create_claim(BY_POOL["env-test"])
    (claim,) = at_work.known
    force_release(claim_id=claim, reason="needed elsewhere")
    at_work.send_heartbeat(claim, 40.0)
    assert not at_work.known


def test_a_waiting_claim_has_a_reason_and_is_cancelled_in_the_end(
    driver: Callable[[], Driver],
) -> None:
    at_work = driver()
    while "waiting" not in at_work.known.values():
        at_work.create_claim(BY_POOL["env-test"])
    claim = next(claim for claim, state in at_work.known.items() if state == "waiting")
    answer = at_work.client.call("GET", f"claims/{claim}/").body
    assert answer["wait"]["text"]
    at_work.give_up(claim)
    assert claim not in at_work.known
    assert Claim.objects.get(pk=claim).outcome == "cancelled"


class Noted(Rooms):
    """Keeps the games instead of playing them."""

    def __init__(self) -> None:
        super().__init__()
        self.games: dict[int, Game] = {}

    def start_game(self, game: Game) -> None:
        self.games.setdefault(game.claim, game)

    def end_game(self, claim: int) -> None:
        self.games.pop(claim, None)

    def end_others(self, claims: Collection[int]) -> None:
        self.games = {claim: self.games[claim] for claim in self.games.keys() & claims}


def test_games_lead_from_the_ports_of_a_claim_to_the_rooms_behind_them(
    site: str, token: str
) -> None:
    serve_arcade()
    rooms = Noted()
    with closing(SampleClient(site, token)) as client:
        at_work = Driver(client, chance=Random(1), rooms=rooms)
        at_work.user = "sample"
        for _ in range(6):
            at_work.create_claim(BY_POOL[ARCADE])
        claims = {claim: state for claim, state in at_work.known.items() if state == "bound"}
        assert len(claims) == 6 and rooms.games.keys() == claims.keys()
        for game in rooms.games.values():
            shown = client.call("GET", f"claims/{game.claim}/").body
            assert shown["backend"]["ip"] == "127.0.0.1"
            assert [(door.protocol, door.addresses, door.room) for door in game.doors] == [
                (port["protocol"], (f"127.0.0.1:{port['number']}",), port["number"] + ROOMS)
                for port in shown["ports"]
            ]
            assert {door.room for door in game.doors} == set(shown["backend"]["ports"])
        before = dict(rooms.games)
        again = Driver(client, chance=Random(2), rooms=rooms)
        again.user = "sample"
        again.read_claims()
        assert rooms.games == before, "a restarted driver finds the games"
        ended, *others = claims
        force_release(claim_id=ended, reason="needed elsewhere")
        again.read_claims()
        assert list(rooms.games) == others
        again.release(others[0])
        assert list(rooms.games) == others[1:]


def serve_arcade() -> None:
    """As its worker would have done it."""
    pool = Pool.objects.get(name=ARCADE)
    Pool.objects.filter(pk=pool.pk).update(state="active", observed_at=timezone.now())
    member = Member.objects.get(pool=pool)
    record_sync_result(member_id=member.pk, is_gone=False, is_ready=True)
    Member.objects.filter(pk=member.pk).update(addresses=["127.0.0.1"])


@pytest.fixture
def rollouts(site: str, token: str, tmp_path: Path) -> Iterator[tuple[Rollouts, list[float]]]:
    """The driver, and the delays until its next actions."""
    pauses: list[float] = []
    vera = SampleClient(site, (tmp_path / "sample-releaser-token").read_text().strip())
    yield Rollouts(vera, lambda seconds, call: pauses.append(seconds)), pauses
    vera.close()


def test_a_rollout_outdates_the_runners(rollouts: tuple[Rollouts, list[float]]) -> None:
    vera, pauses = rollouts
    pool = Pool.objects.get(name=RUNNERS)
    Pool.objects.filter(pk=pool.pk).update(state="active", observed_at=timezone.now())
    grow_pool(pool_id=pool.pk, reason="a member before the rollout")
    vera.begin()
    vera.change()
    vera.change()
    (member,) = Member.objects.filter(pool=pool)
    assert member.labels == {"toolchain": "41"}
    (outdated,) = scaling_sql.count_outdated(pools=[pool.pk])
    assert outdated.n == 1
    labels = spec_of(Pool.objects.get(pk=pool.pk)).member_labels
    assert dict(labels) == {"toolchain": "43"}
    reasons = Event.objects.filter(verb="configure", pool_id=pool.pk).order_by("id")
    assert [(event.actor, event.reason) for event in reasons] == [
        ("vera/driver", "toolchain 42 is released"),
        ("vera/driver", "toolchain 43 is released"),
    ]
    assert pauses == [FIRST, EVERY, EVERY]


def test_a_rollout_leaves_runners_without_the_label_alone(
    rollouts: tuple[Rollouts, list[float]], capsys: pytest.CaptureFixture[str]
) -> None:
    pool = Pool.objects.get(name=RUNNERS)
    config = config_of(pool)
    del config["members"]["labels"]
    update_pool(RUNNERS, config)
    rollouts[0].change()
    assert not spec_of(Pool.objects.get(pk=pool.pk)).member_labels
    assert capsys.readouterr().out == ""


def test_a_driver_of_an_older_sample_drives_the_pools_that_exist(
    driver: Callable[[], Driver],
) -> None:
    delete_pool(pool_name=RUNNERS)
    Pool.objects.filter(name=RUNNERS).update(state="gone")
    at_work = driver()
    at_work.skip_missing_pools()
    assert [team.pool for team in at_work.teams] == ["env-test", "device-ports", ARCADE]


def test_the_driver_stops_when_the_sample_is_removed(driver: Callable[[], Driver]) -> None:
    at_work = driver()
    remove_sample()
    with pytest.raises(SampleUnauthorised):
        at_work.read_claims()


def test_sigterm_ends_the_driver_at_once(site: str, token: str, tmp_path: Path) -> None:
    environment = {**os.environ, "BERTH_HOME": str(tmp_path)}
    command = [sys.executable, "-m", "project.sample.driver", site]
    process = subprocess.Popen(
        command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert "drives 5 pools" in process.stdout.readline()
    process.send_signal(signal.SIGTERM)
    process.stdout.close()
    assert process.wait(5) == 0


class Shaky(BaseHTTPRequestHandler):
    """Answers 503 first, then closes the connection without a word, then works."""

    keys: list[str | None] = []

    def do_POST(self) -> None:
        self.keys.append(self.headers["Idempotency-Key"])
        self.rfile.read(int(self.headers["Content-Length"]))
        if len(self.keys) == 2:
            self.close_connection = True
            return
        self.send_response(503 if len(self.keys) == 1 else 201)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", "2")
        self.end_headers()
        self.wfile.write(b"{}")

    def log_message(self, format: str, *args: Any) -> None:
        return


@pytest.fixture
def shaky() -> Iterator[str]:
    Shaky.keys.clear()
    with HTTPServer(("127.0.0.1", 0), Shaky) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}/"
        server.shutdown()
        thread.join()


def test_a_create_with_a_lost_answer_is_sent_again_with_its_key(shaky: str) -> None:
    client = SampleClient(shaky, "berth_x")
    assert client.call("POST", "claims/", {"pool": "env-test"}, "k1").status == 201
    assert Shaky.keys == ["k1", "k1", "k1"]
    client.close()
