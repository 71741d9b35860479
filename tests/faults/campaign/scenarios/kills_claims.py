"""kill -9 of each process at the steps claim, bind and release."""

import random

from tests.faults.campaign.scenario import Outcome, scenario
from tests.faults.campaign.site import Site
from tests.faults.campaign.steps import StepScenario
from tests.faults.test_kills import FILE, POOLS
from tests.faults.traps import Trap

CALLERS = 3  # for each pool: more than its slots, so that claims wait


class KillClaims(StepScenario):
    def prepare(self) -> None:
        self.site = Site(self.folder, FILE)
        self.site.install_traps(self.traps)
        self.site.start_callers(POOLS, CALLERS)

    def round(self, chance: random.Random, number: int) -> Outcome:
        pair, fault, killed_at = self.strike(chance, number)
        again = self.site.wait_served(POOLS, killed_at)
        return Outcome(fault, again, findings=self.site.find_broken(), pair=pair)


@scenario
class KillAtClaim(KillClaims):
    name = "kill-claim"
    breaks = "kills while a claim is written"
    traps = (Trap("claim", "claims_claim", "AFTER INSERT", performers=("web",)),)


@scenario
class KillAtBind(KillClaims):
    name = "kill-bind"
    breaks = "kills while a slot gets a holder"
    traps = (
        Trap(
            "bind",
            "slots_slot",
            "AFTER UPDATE",
            "OLD.claim_id IS NULL AND NEW.claim_id IS NOT NULL",
            ("web", "allocate"),
        ),
    )


@scenario
class KillAtRelease(KillClaims):
    name = "kill-release"
    breaks = "kills while a claim ends, or its slot becomes clean"
    traps = (
        Trap(
            "release",
            "claims_claim",
            "AFTER UPDATE",
            "OLD.state <> 'ended' AND NEW.state = 'ended'",
            ("web",),
        ),
        Trap(
            "clean",
            "slots_slot",
            "AFTER UPDATE",
            "OLD.state = 'draining' AND NEW.state = 'idle'",
            ("worker",),
        ),
    )
