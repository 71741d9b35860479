"""kill -9 of each process at the steps claim, bind and release."""

import random
from typing import ClassVar

from tests.faults.campaign.scenario import Outcome, scenario
from tests.faults.campaign.site import Site, SiteScenario
from tests.faults.test_kills import FILE, POOLS
from tests.faults.traps import Trap
from tests.faults.victims import SCALERS, VICTIMS

CALLERS = 3  # for each pool: more than its slots, so that claims wait
ALL = (*VICTIMS, *SCALERS)


class KillClaims(SiteScenario):
    traps: ClassVar[tuple[Trap, ...]]

    def prepare(self) -> None:
        self.site = Site(self.folder, FILE)
        self.site.install_traps(self.traps)
        self.site.start_callers(POOLS, CALLERS)

    def round(self, chance: random.Random, number: int) -> Outcome:
        moment = chance.choice(self.traps).name
        victim = self.pick(ALL, number)
        fault, killed_at = self.site.kill_at(chance, moment, victim)
        again = self.site.wait_served(POOLS, killed_at)
        return Outcome(fault, again, findings=self.site.find_broken())


@scenario
class KillAtClaim(KillClaims):
    name = "kill-claim"
    breaks = "processes killed while a claim is written"
    traps = (Trap("claim", "claims_claim", "AFTER INSERT"),)


@scenario
class KillAtBind(KillClaims):
    name = "kill-bind"
    breaks = "processes killed while a slot gets a holder"
    traps = (
        Trap(
            "bind",
            "slots_slot",
            "AFTER UPDATE",
            "OLD.claim_id IS NULL AND NEW.claim_id IS NOT NULL",
        ),
    )


@scenario
class KillAtRelease(KillClaims):
    name = "kill-release"
    breaks = "processes killed while a claim ends, or its slot becomes clean"
    traps = (
        Trap(
            "release",
            "claims_claim",
            "AFTER UPDATE",
            "OLD.state <> 'ended' AND NEW.state = 'ended'",
        ),
        Trap(
            "clean", "slots_slot", "AFTER UPDATE", "OLD.state = 'draining' AND NEW.state = 'idle'"
        ),
    )
