"""The driver of the sample works against a real web process over HTTP."""

import os
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from random import Random
from typing import Any

import pytest

from claims.lifecycle.cancel import force_release
from claims.models import Claim
from project.sample.client import SampleClient, SampleUnauthorised
from project.sample.driver import Driver
from project.sample.scenario import BY_POOL, HARBOUR, TEAMS
from project.sample.services import load_sample, remove_sample, site_folder

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
    for crew in TEAMS:
        for _ in range(15):
            at_work.ask(crew)
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
        at_work.planner.ask()
    assert Claim.objects.filter(pool__name=HARBOUR).count() == 25
    assert capsys.readouterr().out == ""
    again = driver()
    again.look()
    assert again.planner is not None and again.planner.known == at_work.planner.known


def test_a_restarted_driver_finds_and_releases_its_claims(
    driver: Callable[[], Driver],
) -> None:
    before = driver()
    for _ in range(5):
        before.ask(BY_POOL["env-test"])
    after = driver()
    after.look()
    assert after.known == before.known
    held = [claim for claim, state in after.known.items() if state == "bound"]
    for claim in held:
        after.keep(claim, 40.0)
        after.release(claim)
    assert set(Claim.objects.filter(pk__in=held).values_list("outcome", flat=True)) == {"released"}


def test_a_claim_that_a_person_releases_is_forgotten(driver: Callable[[], Driver]) -> None:
    at_work = driver()
    at_work.ask(BY_POOL["env-test"])
    (claim,) = at_work.known
    force_release(claim_id=claim, reason="needed elsewhere")
    at_work.keep(claim, 40.0)
    assert not at_work.known


def test_a_waiting_claim_has_a_reason_and_is_cancelled_in_the_end(
    driver: Callable[[], Driver],
) -> None:
    at_work = driver()
    while "waiting" not in at_work.known.values():
        at_work.ask(BY_POOL["env-test"])
    claim = next(claim for claim, state in at_work.known.items() if state == "waiting")
    answer = at_work.client.call("GET", f"claims/{claim}/").body
    assert answer["wait"]["text"]
    at_work.give_up(claim)
    assert claim not in at_work.known
    assert Claim.objects.get(pk=claim).outcome == "cancelled"


def test_the_driver_stops_when_the_sample_is_removed(driver: Callable[[], Driver]) -> None:
    at_work = driver()
    remove_sample()
    with pytest.raises(SampleUnauthorised):
        at_work.look()


def test_sigterm_ends_the_driver_at_once(site: str, token: str, tmp_path: Path) -> None:
    environment = {**os.environ, "BERTH_HOME": str(tmp_path)}
    command = [sys.executable, "-m", "project.sample.driver", site]
    process = subprocess.Popen(
        command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert "drives 3 pools" in process.stdout.readline()
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
