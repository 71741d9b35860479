"""Plans of the campaign that run on real agents, and how they end."""

import random
import time
from typing import Any

from tests.faults.campaign.site import WITHIN, Site
from tests.waiting import slack

LOCAL = """
kind: Pool
name: lab
provider: local
slots: [any, any]
members: {list: [{name: one}, {name: two}]}
liveness: {heartbeat: 30s, lost: 1m}
"""


class Plans:
    def __init__(self, site: Site, pool: str = "lab") -> None:
        self.site, self.pool = site, pool
        self.made: list[int] = []

    def ask(self, command: str = "echo done") -> int:
        key = f"plan-{time.monotonic_ns()}"
        body = {
            "pool": self.pool,
            "task": "plan",
            "workspace": key,
            "run": {"executor": "command", "commands": {"plan": command}},
        }
        self.made.append(int(self.site.call("POST", "claims/", body, key)["id"]))
        return self.made[-1]

    def wait_begun(self, claim: int) -> None:
        query = f"select count(*) from claims_run where claim_id = {claim}"
        self.site.stack.wait_rows(query, lambda rows: rows != [(0,)], within=WITHIN)

    def wait_ended(self, claim: int) -> dict[str, Any]:
        end = time.monotonic() + 2 * WITHIN * slack()
        while True:
            found = self.site.call("GET", f"claims/{claim}/?wait=10&until=ended")
            if found["state"] == "ended":
                return dict(found)
            assert time.monotonic() < end, f"claim {claim} does not end: {found}"

    def wait_served(self, since: float) -> float:
        """Seconds from `since` until a plan that is asked for now has been made."""
        outcome = self.wait_ended(self.ask())["outcome"]
        assert outcome == "planned", f"a plan after the fault ended {outcome}"
        return time.monotonic() - since

    def find_broken(self, *, runs: int = 1) -> list[str]:
        """Each claim ended as planned, and began at most `runs` times."""
        rows = self.site.stack.execute(
            "select c.id, c.state, c.outcome, (select count(*) from claims_run r where "
            f"r.claim_id = c.id) from claims_claim c where c.id = any(array{self.made}::bigint[])"
        )
        found = [
            f"claim {claim}: {state} {outcome}, begun {count} times"
            for claim, state, outcome, count in rows
            if (state, outcome) != ("ended", "planned") or count > runs
        ]
        if lost := set(self.made) - {row[0] for row in rows}:
            found.append(f"acknowledged claims {sorted(lost)} have no row")
        self.made = []
        return found + self.site.find_broken()


def sleepy(chance: random.Random, longest: float = 2.0) -> str:
    return f"sleep {chance.uniform(0.2, longest):.2f}; echo done"
