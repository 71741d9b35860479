"""kill -9 of each process at the steps of a drain and of a roll."""

import random
import threading
import time
from typing import Any

from tests.faults.campaign.scenario import Outcome, scenario
from tests.faults.campaign.site import WITHIN, Site
from tests.faults.campaign.steps import StepScenario, Strike
from tests.faults.traps import Trap
from tests.waiting import slack

DOCK = """
kind: Pool
name: dock
provider: shed
slots: 2
members: {list: [{name: a}, {name: b}, {name: c}]}
lease: {acknowledge: 10m, heartbeat: 10m}
"""
YARD = """
kind: Pool
name: yard
provider: {kind: yard, template: first}
slots: 2
members: {min: 2, max: 2}
scaling: {policy: fixed, size: 2, cooldown: {up: 0s, down: 0s}}
lease: {acknowledge: 10m, heartbeat: 10m}
"""


class KillMembers(StepScenario):
    def order(
        self, chance: random.Random, number: int, method: str, path: str, body: Any
    ) -> Strike:
        """kill -9 while the order is carried out. The order is repeated until it is answered."""
        caller = self.site.make_caller("operator", "")
        if method == "PATCH":
            caller.headers = {"If-Match": "*"}
        answers: list[tuple[int, Any]] = []
        thread = threading.Thread(
            target=lambda: answers.append(caller.call(method, path, body)), daemon=True
        )
        try:
            return self.strike(chance, number, thread.start)
        finally:
            thread.join(WITHIN * slack())
            caller.close()
            assert answers and answers[0][0] < 300, (method, path, answers)


@scenario
class KillAtDrain(KillMembers):
    name = "kill-drain"
    breaks = "kills as a drain is ordered, evicts a claim, or ends"
    traps = (
        Trap(
            "order",
            "pools_member",
            "AFTER UPDATE",
            "OLD.drain_until IS NULL AND NEW.drain_until IS NOT NULL",
            ("web",),
        ),
        Trap(
            "evict",
            "claims_claim",
            "AFTER UPDATE",
            "OLD.state = 'bound' AND NEW.state IN ('waiting', 'blocked')",
            ("web",),
        ),
        Trap(
            "end",
            "pools_member",
            "AFTER UPDATE",
            "OLD.drain_until IS NOT NULL AND NEW.drain_until IS NULL",
            ("finalize",),
        ),
    )

    def prepare(self) -> None:
        self.site = Site(self.folder, DOCK)
        self.site.install_traps(self.traps)

    def round(self, chance: random.Random, number: int) -> Outcome:
        key = f"drain-{self.seed}-{number}-{time.monotonic_ns()}"
        body = {"pool": "dock", "owner": key, "retry": True}
        claim = self.site.call("POST", "claims/", body, key)
        claim = self.site.call("GET", f"claims/{claim['id']}/?wait=30&until=bound")
        assert claim["state"] == "bound", claim
        ((member,),) = self.site.stack.execute(
            f"select member_id from slots_slot where claim_id = {claim['id']}"
        )
        order = {"reason": "campaign", "stays": True, "force": True}
        pair, fault, killed_at = self.order(
            chance, number, "POST", f"members/{member}/drain/", order
        )
        self.site.stack.wait_rows(
            "select c.state, s.member_id, m.drain_until is null, m.is_cordoned, (select count(*) "
            "from slots_slot where member_id = m.id and claim_id is not null) "
            "from claims_claim c left join slots_slot s on s.claim_id = c.id, pools_member m "
            f"where c.id = {claim['id']} and m.id = {member}",
            lambda rows: (
                [row for row in rows if row[0] == "bound" and row[1] != member]
                and rows[0][2:] == (True, True, 0)
            ),
            within=WITHIN,
        )
        again = time.monotonic() - killed_at
        findings = self.site.find_broken()
        now = self.site.call("GET", f"claims/{claim['id']}/")
        if now["generation"] == claim["generation"]:
            findings.append(f"claim {claim['id']} moved without a new generation: {now}")
        stale, answer = self.site.client.call(
            "POST", f"claims/{claim['id']}/release/", {"generation": claim["generation"]}
        )
        if stale != 409:
            findings.append(f"a release with the old generation was answered {stale}: {answer}")
        self.site.call("POST", f"claims/{claim['id']}/release/", {"generation": now["generation"]})
        self.site.call("POST", f"members/{member}/uncordon/", {"reason": "campaign"})
        return Outcome(fault, again, findings=findings, pair=pair)


@scenario
class KillAtRoll(KillMembers):
    name = "kill-roll"
    breaks = "kills as a roll is ordered, rebuilds a member, or makes it ready"
    traps = (
        Trap(
            "order",
            "pools_pool",
            "AFTER UPDATE",
            "OLD.member_digest IS DISTINCT FROM NEW.member_digest",
            ("web",),
        ),
        Trap(
            "rebuild",
            "pools_member",
            "AFTER UPDATE",
            "NEW.incarnation > OLD.incarnation",
            ("scale",),
        ),
        Trap(
            "ready",
            "pools_member",
            "AFTER UPDATE",
            "OLD.state = 'creating' AND NEW.state = 'ready'",
            ("worker",),
        ),
    )

    def prepare(self) -> None:
        self.site = Site(self.folder, YARD)
        self.site.stack.wait_rows(
            "select count(*) from pools_member where state = 'ready'",
            lambda rows: rows == [(2,)],
            within=WITHIN,
        )
        self.site.install_traps(self.traps)
        self.site.start_callers(("yard",), 0)
        ((self.busy,),) = self.site.stack.execute(
            "select member_id from slots_slot where claim_id is not null"
        )

    def round(self, chance: random.Random, number: int) -> Outcome:
        template = f"t-{number}-{time.monotonic_ns()}"
        patch = {"provider": {"kind": "yard", "template": template}}
        pair, fault, killed_at = self.order(chance, number, "PATCH", "pools/yard/", patch)
        self.site.stack.wait_rows(
            "select m.state from pools_member m join pools_pool p on p.id = m.pool_id "
            f"where m.state <> 'gone' and m.id <> {self.busy} "
            "and m.spec_digest = p.member_digest",
            lambda rows: rows == [("ready",)],
            within=2 * WITHIN,
        )
        again = time.monotonic() - killed_at
        findings = self.site.find_broken()
        ((incarnation, state),) = self.site.stack.execute(
            f"select incarnation, state from pools_member where id = {self.busy}"
        )
        if (incarnation, state) != (1, "ready"):
            findings.append(f"the busy member was rolled: incarnation {incarnation}, {state}")
        wrong = [
            made
            for made in self.site.world.glob("*/.made-*")
            if made.parent.name != str(self.busy)
            and made == max(made.parent.glob(".made-*"), key=lambda file: int(file.name[6:]))
            and made.read_text() != template
        ]
        findings += [f"{made} was made from {made.read_text()}, not {template}" for made in wrong]
        return Outcome(fault, again, findings=findings, pair=pair)
