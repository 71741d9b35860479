"""kill -9 of each process at the steps scale-out and scale-in, over members that Berth creates."""

import random
import time
from collections.abc import Callable
from typing import Any

from tests.faults.campaign.scenario import Outcome, scenario
from tests.faults.campaign.site import WITHIN, Site
from tests.faults.campaign.steps import StepScenario
from tests.faults.shed import list_made
from tests.faults.traps import Trap
from tests.waiting import LOOK_AGAIN, slack

MOST = 3
POOL = f"""
kind: Pool
name: yard
provider: {{kind: yard, template: t}}
slots: 2
members: {{min: 1, max: {MOST}}}
scaling:
  policy: on_demand
  idle_for: 1s
  cooldown: {{up: 0s, down: 0s}}
  step: {{up: all, down: all}}
lease: {{acknowledge: 10m, heartbeat: 10m}}
"""
LIVE = "select id from pools_member where state <> 'gone' order by id"
BUSY = "select distinct member_id from slots_slot where claim_id is not null order by 1"


class KillScaling(StepScenario):
    def prepare(self) -> None:
        self.site = Site(self.folder, POOL)
        self.site.install_traps(self.traps)
        self.site.start_callers(("yard",), 0)
        self.kept = self.ids(BUSY)
        self.wait_settled()

    def ids(self, query: str) -> list[int]:
        return [row[0] for row in self.site.stack.execute(query)]

    def wait_settled(self, since: float = 0.0) -> float:
        """Seconds until the members are those that are busy, in the rows and outside."""

        def is_settled() -> bool:
            live = self.ids(LIVE)
            return live == self.ids(BUSY) == sorted(list_made())

        self.wait(is_settled, "members that are not busy stay")
        return time.monotonic() - since

    def wait(self, is_reached: Callable[[], bool], what: str) -> None:
        """The scaler looks each 5 s by itself; hints of a busy system wake it sooner."""
        end = time.monotonic() + WITHIN * slack()
        hint_at = 0.0
        while not is_reached():
            now = time.monotonic()
            assert now < end, f"{what}: {self.ids(LIVE)}, {self.ids(BUSY)}, {list_made()}"
            if now > hint_at:
                self.site.stack.execute("select pg_notify('berth', 'pools')")
                hint_at = now + 0.5
            time.sleep(LOOK_AGAIN * 3)

    def ask(self, number: int, count: int) -> list[dict[str, Any]]:
        keys = [f"{self.name}-{self.seed}-{number}-{time.monotonic_ns()}-{n}" for n in range(count)]
        return [
            self.site.call("POST", "claims/", {"pool": "yard", "owner": key}, key) for key in keys
        ]

    def wait_bound(self, claims: list[dict[str, Any]]) -> list[dict[str, Any]]:
        found = [
            self.site.call("GET", f"claims/{claim['id']}/?wait=55&until=bound") for claim in claims
        ]
        assert [claim["state"] for claim in found] == ["bound"] * len(claims), found
        return found

    def release(self, claims: list[dict[str, Any]]) -> None:
        for claim in claims:
            body = {"generation": claim["generation"]}
            self.site.call("POST", f"claims/{claim['id']}/release/", body)

    def find_broken(self) -> list[str]:
        found = self.site.find_broken()
        if len(live := self.ids(LIVE)) > MOST:
            found.append(f"{len(live)} members, {MOST} at most")
        if not set(self.kept) <= set(live):
            found.append(f"the busy member {self.kept} was removed: {live}")
        return found

    def verify(self) -> list[str]:
        self.wait_settled()
        held = [promise.claim for promise in self.site.ledger.promises.values()]
        states = dict(self.site.stack.execute("select id, state from claims_claim"))
        lost = [claim for claim in held if states[claim] != "bound"]
        return [*self.site.verify(), *(f"keeper's claim {claim} is lost" for claim in lost)]


@scenario
class KillAtScaleOut(KillScaling):
    name = "kill-scale-out"
    breaks = "kills as the scaler decides to grow, or a member becomes ready"
    traps = (
        Trap("decided", "pools_member", "AFTER INSERT", performers=("scale",)),
        Trap("written", "pools_decision", "BEFORE INSERT", "NEW.delta > 0", ("scale",)),
        Trap(
            "ready",
            "pools_member",
            "AFTER UPDATE",
            "OLD.state = 'creating' AND NEW.state = 'ready'",
            ("worker",),
        ),
    )

    def round(self, chance: random.Random, number: int) -> Outcome:
        claims: list[dict[str, Any]] = []
        count = chance.randint(2, 5)
        pair, fault, killed_at = self.strike(
            chance, number, lambda: claims.extend(self.ask(number, count))
        )
        claims = self.wait_bound(claims)
        again = time.monotonic() - killed_at
        findings = self.find_broken()
        self.release(claims)
        self.wait_settled()
        return Outcome(fault, again, findings=[*findings, *self.find_broken()], pair=pair)


@scenario
class KillAtScaleIn(KillScaling):
    name = "kill-scale-in"
    breaks = "kills as the scaler decides to shrink, or a member goes"
    traps = (
        Trap("removing", "pools_decision", "BEFORE INSERT", "NEW.delta < 0", ("scale",)),
        Trap(
            "leaving",
            "pools_member",
            "AFTER UPDATE",
            "OLD.state <> 'deleting' AND NEW.state = 'deleting'",
            ("scale",),
        ),
        Trap(
            "gone",
            "pools_member",
            "AFTER UPDATE",
            "NEW.state = 'gone' AND OLD.state <> 'gone'",
            ("worker",),
        ),
    )

    def round(self, chance: random.Random, number: int) -> Outcome:
        claims = self.wait_bound(self.ask(number, 5))
        # One claim may stay, so that the scaler chooses between members.
        busy = claims[: chance.randint(0, 1)]
        pair, fault, killed_at = self.strike(
            chance, number, lambda: self.release(claims[len(busy) :])
        )
        again = self.wait_settled(killed_at)
        findings = self.find_broken()
        for claim in busy:
            now = self.site.call("GET", f"claims/{claim['id']}/")
            if (now["state"], now["generation"]) != ("bound", claim["generation"]):
                findings.append(f"the busy claim {claim['id']} lost its member: {now}")
        self.release(busy)
        return Outcome(fault, again, findings=findings, pair=pair)
