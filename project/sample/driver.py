"""Drives the sample through the public HTTP API: creates claims, sends heartbeats, and releases the
claims. Usage: python -m project.sample.driver [URL]

The driver has no state. Its work follows from the keys of its claims, so that a restarted driver
continues, and a request with a lost answer is repeated with its key.
"""

import heapq
import itertools
import json
import os
import secrets
import signal
import sys
import time
from collections.abc import Callable
from contextlib import closing
from datetime import datetime
from functools import partial
from pathlib import Path
from random import Random
from typing import Any
from urllib.parse import urlencode

from project.sample.arcade import Arcade
from project.sample.client import SampleClient, SampleUnauthorised, log_line
from project.sample.planner import Planner
from project.sample.rollouts import Rollouts
from project.sample.rooms import Rooms
from project.sample.scenario import (
    ARCADE,
    TEAMS,
    SampleClaim,
    SampleTeam,
    count_opening_claims,
    key_of,
    pause_before_next,
    task_of,
    work_of,
)
from project.settings import environment as env

READ_INTERVAL = 20.0  # seconds between two reads of all claims of the driver
READ_INTERVAL_QUEUE = 4.0  # the same while a claim waits
RUSH = 15.0  # seconds in which the first claims of a team come
SETTLE = 1.0  # seconds after the start: holds that have ended meanwhile are released by then
TOKEN_FILE, APPROVER_FILE = "sample-token", "sample-approver-token"  # in BERTH_HOME
RELEASER_FILE = "sample-releaser-token"
STATES = "waiting,blocked,bound,reserved,parked"


class Driver:
    def __init__(
        self,
        client: SampleClient,
        approver: SampleClient | None = None,
        releaser: SampleClient | None = None,
        *,
        rooms: Rooms | None = None,
        chance: Random | None = None,
        teams: tuple[SampleTeam, ...] = TEAMS,
    ) -> None:
        self.client = client
        self.chance = chance or Random()
        self.teams = teams
        self.started = time.monotonic()
        self.user = ""
        self.known: dict[int, str] = {}  # claims that hold or wait: the last known state
        self.generations: dict[int, int] = {}
        self.pool_of: dict[int, str] = {}
        self.agenda: list[tuple[float, int, Callable[[], None]]] = []
        self.tie = itertools.count()
        self.read_at = 0.0
        self.planner = (
            None if approver is None else Planner(client, approver, self.after, self.chance)
        )
        self.rooms = rooms or Rooms()
        self.arcade = Arcade(client, self.rooms, self.after)
        self.rollouts = None if releaser is None else Rollouts(releaser, self.after)

    # -- time -----------------------------------------------------------------
    def after(self, seconds: float, call: Callable[[], None]) -> None:
        heapq.heappush(self.agenda, (time.monotonic() + max(0.0, seconds), next(self.tie), call))

    def run(self) -> None:
        self.user = self.client.call("GET", "me/").body["username"]
        self.skip_missing_pools()
        self.read_claims()
        tasks = len(self.planner.known) if self.planner else 0
        log_line(
            f"drives {len(self.teams) + bool(self.planner)} pools; found {len(self.known) + tasks} "
            "claims of its own"
        )
        for team in self.teams:
            self.after(SETTLE, partial(self.open_team, team))
            self.after(self.chance.uniform(0.1, 2.0), partial(self.arrive, team))
        if self.planner:
            self.planner.begin()
        if self.rollouts:
            self.rollouts.begin()
        while True:
            due = min(self.read_at, self.agenda[0][0]) if self.agenda else self.read_at
            time.sleep(max(0.0, due - time.monotonic()))
            if self.agenda and self.agenda[0][0] <= time.monotonic():
                heapq.heappop(self.agenda)[2]()
            elif self.read_at <= time.monotonic():
                self.read_claims()

    def skip_missing_pools(self) -> None:
        """A sample that an earlier version of Berth loaded has fewer pools."""
        pools = {pool["name"] for pool in self.client.call("GET", "pools/").body["results"]}
        self.teams = tuple(team for team in self.teams if team.pool in pools)

    # -- all claims -----------------------------------------------------------
    def read_claims(self) -> None:
        """Read all live claims of the driver: start the work of newly bound claims, and forget
        claims that ended.
        """
        found: dict[int, dict[str, Any]] = {}
        path = "claims/?" + urlencode({"requested_by": self.user, "state": STATES, "limit": 200})
        while path:
            page = self.client.call("GET", path).body
            found |= {claim["id"]: claim for claim in page["results"]}
            path = page["next"].partition("/api/v1/")[2] if page.get("next") else ""
        for gone in self.known.keys() - found.keys():
            self.forget(gone)
        for claim in found.values():
            self.track_claim(claim)
        self.rooms.end_others(found.keys())
        if self.planner:
            for gone in self.planner.known.keys() - found.keys():
                self.planner.forget(gone)
        is_queue = self.planner is not None or any(
            state != "bound" for state in self.known.values()
        )
        self.read_at = time.monotonic() + (READ_INTERVAL_QUEUE if is_queue else READ_INTERVAL)

    def track_claim(self, claim: dict[str, Any]) -> None:
        key = claim["key"] or ""
        if self.planner and (task := task_of(key)) is not None:
            self.planner.track_claim(claim, task)
        if (work := work_of(key)) is None or self.known.get(claim["id"]) == claim["state"]:
            return
        self.known[claim["id"]] = claim["state"]
        self.generations[claim["id"]] = claim["generation"]
        self.pool_of[claim["id"]] = key.partition(".")[0]
        if claim["state"] == "bound":
            self.hold(claim, work)
        else:
            self.after(work.patience - age(claim["created_at"]), lambda: self.give_up(claim["id"]))

    def forget(self, claim: int) -> None:
        for kept in (self.known, self.generations, self.pool_of):
            kept.pop(claim, None)
        self.rooms.end_game(claim)

    # -- one claim ------------------------------------------------------------
    def open_team(self, team: SampleTeam) -> None:
        """The first peak. Claims that an earlier driver left count."""
        left = sum(pool == team.pool for pool in self.pool_of.values())
        for _ in range(count_opening_claims(team) - left):
            self.after(self.chance.uniform(0.0, RUSH), partial(self.create_claim, team))

    def arrive(self, team: SampleTeam) -> None:
        queue = sum(
            pool == team.pool and self.known[claim] != "bound"
            for claim, pool in self.pool_of.items()
        )
        if queue < team.longest_queue:  # a long pause of the pool must not collect thousands
            self.create_claim(team)
        elapsed = time.monotonic() - self.started
        pause = pause_before_next(team, elapsed, self.chance.random())
        self.after(pause, lambda: self.arrive(team))

    def create_claim(self, team: SampleTeam) -> None:
        key = key_of(team.pool, secrets.token_hex(6))
        work = work_of(key)
        assert work is not None
        answer = self.client.call("POST", "claims/", work.body(team.pool), key)
        if answer.is_success:
            self.track_claim(answer.body)
            if answer.body["state"] != "bound":
                self.read_at = min(self.read_at, time.monotonic() + READ_INTERVAL_QUEUE)
        else:
            log_line(
                f"{team.pool} rejects a claim ({answer.status}): {describe_problem(answer.body)}"
            )

    def hold(self, claim: dict[str, Any], work: SampleClaim) -> None:
        number = claim["id"]
        if claim["acknowledge_by"]:  # null once acknowledged
            self.client.call(
                "POST", f"claims/{number}/acknowledge/", {"generation": claim["generation"]}
            )
        if work.beat:
            self.after(
                self.chance.uniform(0.2, 1.0) * work.beat,
                lambda: self.send_heartbeat(number, work.beat),
            )
        if self.pool_of[number] == ARCADE:
            self.arcade.open(claim)
        self.after(work.hold - age(claim["bound_at"]), lambda: self.release(number))

    def send_heartbeat(self, claim: int, beat: float) -> None:
        if self.known.get(claim) != "bound":
            return
        if self.act(claim, "keep"):
            self.after(beat, lambda: self.send_heartbeat(claim, beat))

    def release(self, claim: int) -> None:
        if self.known.get(claim) == "bound":
            self.act(claim, "release")
            self.forget(claim)

    def give_up(self, claim: int) -> None:
        """Cancel a claim that still waits. If it was bound meanwhile, the next read finds it."""
        if (
            self.known.get(claim, "bound") != "bound"
            and self.client.call(
                "POST", f"claims/{claim}/cancel/", {"reason": "waited too long"}
            ).is_success
        ):
            self.forget(claim)

    def act(self, claim: int, verb: str) -> bool:
        """False if this hold has ended, for example because an operator released the claim. The
        driver then forgets the claim.
        """
        if self.client.call(
            "POST", f"claims/{claim}/{verb}/", {"generation": self.generations[claim]}
        ).is_success:
            return True
        self.forget(claim)
        return False


def age(moment: str) -> float:
    return time.time() - datetime.fromisoformat(moment).timestamp()


def describe_problem(problem: object) -> str:
    return str(problem.get("detail", problem)) if isinstance(problem, dict) else str(problem)


def find_url() -> str:
    """The address of Berth, from the supervisor or the state folder."""
    if url := os.environ.get("BERTH_URL"):
        return url
    try:
        return str(json.loads((env.home() / "lock").read_text())["url"])
    except (OSError, ValueError, KeyError):
        return "http://127.0.0.1:8000/"


def read_token(file: Path) -> str:
    try:
        return file.read_text().strip()
    except FileNotFoundError:
        return ""


def main() -> int:
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))  # safe, because the driver has no state
    signal.signal(signal.SIGINT, lambda *_: sys.exit(0))
    url, file, pause = (sys.argv[1:] or [find_url()])[0], env.home() / TOKEN_FILE, 1.0
    approver, releaser = env.home() / APPROVER_FILE, env.home() / RELEASER_FILE
    if not read_token(file):
        log_line(f"No sample is loaded ({file} is missing). Load it: manage.py sample load")
        return 1
    with closing(Rooms()) as rooms:
        while token := read_token(file):
            try:
                with (
                    closing(SampleClient(url, token)) as client,
                    closing(SampleClient(url, read_token(approver))) as ben,
                    closing(SampleClient(url, read_token(releaser))) as vera,
                ):
                    Driver(
                        client,
                        ben if ben.token else None,
                        vera if vera.token else None,
                        rooms=rooms,
                    ).run()
            except SampleUnauthorised:
                log_line(f"{url} rejects the token of the sample; trying again in {pause:g} s")
                time.sleep(pause)
                pause = min(pause * 2, 30.0)
    log_line("the sample was removed; the driver ends")
    return 0


if __name__ == "__main__":
    sys.exit(main())
