"""kill -9 of each process, agents included, at the steps plan, approve and apply."""

import random
import shutil
import tempfile
import time
from pathlib import Path
from typing import Any, ClassVar

from tests.faults.authors import Author, Diary
from tests.faults.campaign.scenario import Outcome, scenario
from tests.faults.campaign.site import Site, collect
from tests.faults.campaign.steps import StepScenario
from tests.faults.checks import (
    applied_twice,
    audit,
    check_doctor,
    check_ends,
    check_pages,
)
from tests.faults.traps import Trap
from tests.faults.victims import AGENT, ALL
from tests.tofu import find_tofu, place_tofu
from tests.waiting import slack

WITHIN = 120.0
AUTHORS = 3
POOL = """
kind: Pool
name: harbour
provider: local
slots: [any, any]
placement: spread
members: {{list: [{{name: one}}, {{name: two}}, {{name: three}}]}}
liveness: {{heartbeat: 30s, lost: 1m}}
task: {{{more}env: {{HELLO_TARGET: {target}, HELLO_PACE: "0.05"}}}}
"""
WEB = ("web",)  # it writes what agents and authors tell it
BEGIN_PLAN = Trap("begin_plan", "claims_run", "AFTER INSERT", "NEW.step = 'plan'", WEB)
END_PLAN = Trap("end_plan", "claims_plan", "AFTER INSERT", performers=WEB)
APPROVE = Trap("approve", "claims_approval", "AFTER INSERT", performers=WEB)
RESUME = Trap(
    "resume",
    "claims_claim",
    "AFTER UPDATE",
    "OLD.state IN ('reserved', 'parked') AND NEW.state IN ('bound', 'waiting')",
    WEB,
)
BEGIN_APPLY = Trap("begin_apply", "claims_run", "AFTER INSERT", "NEW.step = 'apply'", WEB)
END_APPLY = Trap(
    "end_apply",
    "claims_run",
    "AFTER UPDATE",
    "NEW.step = 'apply' AND OLD.ended_at IS NULL AND NEW.ended_at IS NOT NULL",
    WEB,
)


class KillTasks(StepScenario):
    moment: ClassVar[str]  # of a claim that was made after the kill: the system serves again
    victims = (*ALL, AGENT)

    def prepare(self) -> None:
        # Tasks may run as other users, so all users may write there.
        self.target = Path(tempfile.mkdtemp(dir="/var/tmp", prefix="berth-faults-"))
        self.target.chmod(0o777)
        self.site = self.make_site()
        self.site.install_traps(self.traps)
        self.diary = Diary()
        self.authors = [self.make_author(f"quay-{n}") for n in range(AUTHORS)]
        for author in self.authors:
            author.start()
        assert self.diary.wait_whole(0, WITHIN * slack()), (
            f"nothing is applied at all: {self.diary.broken} {self.site.stack.heard[-3000:]}"
        )

    def make_site(self) -> Site:
        pool = POOL.format(target=self.target, more="")
        return Site(self.folder, pool, BERTH_TASK_FOLDERS=str(self.target))

    def make_author(self, name: str) -> Author:
        return Author(name, self.site.stack.port, self.site.token, "harbour", self.diary)

    def round(self, chance: random.Random, number: int) -> Outcome:
        pair, fault, killed_at = self.strike(chance, number)
        limit = WITHIN * slack()
        if self.moment == "applied":
            is_served = self.diary.wait_whole(killed_at, limit)
        else:
            is_served = self.diary.wait_reached(self.moment, killed_at, limit)
        again = time.monotonic() - killed_at
        findings = self.find_broken()
        if not is_served:
            findings.append(f"no claim {self.moment} in {limit:.0f} s")
        return Outcome(fault, again, findings=findings, pair=pair)

    def find_broken(self) -> list[str]:
        with self.diary.change:
            broken, self.diary.broken = self.diary.broken, []
        twice = applied_twice(self.target)
        return [
            *broken,
            *(f"claim {claim} was applied {count} times" for claim, count in twice.items()),
            *(f"{what}: {count}" for what, count in audit(self.site.stack).items()),
            *(f"{a.name}: {a.error!r}" for a in self.authors if a.error),
        ]

    def verify(self) -> list[str]:
        for author in self.authors:
            author.stopped.set()
        for author in self.authors:
            author.join(300)
        self.site.remove_traps()
        stack = self.site.stack
        return [
            *self.find_broken(),
            *collect(
                [
                    lambda: check_ends(stack, self.diary),
                    lambda: check_pages(stack, self.diary, self.target),
                    lambda: check_doctor(stack),
                ]
            ),
        ]

    def close(self) -> None:
        for author in getattr(self, "authors", []):
            author.stopped.set()
        super().close()
        shutil.rmtree(self.target, ignore_errors=True)


@scenario
class KillAtPlan(KillTasks):
    name = "kill-plan"
    breaks = "kills as a plan begins, or is stored"
    traps = (BEGIN_PLAN, END_PLAN)
    moment = "planned"


@scenario
class KillAtApprove(KillTasks):
    name = "kill-approve"
    breaks = "kills while an approval is written"
    traps = (APPROVE, RESUME)
    moment = "approved"


@scenario
class KillAtApply(KillTasks):
    name = "kill-apply"
    breaks = "kills as an apply begins, or ends"
    traps = (BEGIN_APPLY, END_APPLY)
    moment = "applied"


# Each apply makes a folder of its own, because each task may run as a user of its own.
MAIN = """
variable "ships" { type = list(string) }
resource "terraform_data" "log" {
  provisioner "local-exec" {
    command = "d=$(mktemp -d TARGET/ship-XXXXXX) && chmod 755 $d && echo \\"$BERTH_CLAIM $BERTH_GENERATION\\" > $d/applied.log && chmod 644 $d/applied.log"
  }
}
resource "terraform_data" "ship" {
  depends_on = [terraform_data.log]
  for_each   = toset(var.ships)
  input      = each.key
}
"""  # noqa: E501


class TofuAuthor(Author):
    """Plans and applies a module with OpenTofu, whose state goes with the apply."""

    target: Path

    def make_run(self, key: str) -> dict[str, Any]:
        ships = [f"{key}-{n}" for n in range(self.chance.randint(1, 4))]
        return {
            "executor": "terraform",
            "state": "discard",
            "variables": {"ships": ships},
            "source": {"files": {"main.tf": MAIN.replace("TARGET", str(self.target))}},
        }


@scenario
class KillTofu(KillTasks):
    name = "kill-tofu"
    breaks = "kills while OpenTofu plans and applies"
    traps = (BEGIN_PLAN, END_PLAN, BEGIN_APPLY, END_APPLY)
    moment = "applied"

    @classmethod
    def why_skipped(cls) -> str:
        return "" if find_tofu() else "OpenTofu is not built: make tofu"

    def make_site(self) -> Site:
        built = find_tofu()
        assert built is not None
        self.binary = place_tofu(built)
        pool = POOL.format(target=self.target, more=f"binary: {self.binary}, ")
        return Site(self.folder, pool, BERTH_TASK_FOLDERS=str(self.target))

    def make_author(self, name: str) -> Author:
        author = TofuAuthor(name, self.site.stack.port, self.site.token, "harbour", self.diary)
        author.target = self.target
        return author

    def close(self) -> None:
        super().close()
        if hasattr(self, "binary"):
            shutil.rmtree(self.binary.parent)
