"""The wall clock of one process is off by an hour, from one moment to the next."""

import random
import shutil
import struct
import subprocess
import time
from pathlib import Path

from project.kernel.embedded.process import free_port
from tests.end_to_end.stack import Stack
from tests.faults import campaign
from tests.faults.campaign.scenario import NotInjectedError, Outcome, scenario
from tests.faults.campaign.site import WITHIN, Site, SiteScenario
from tests.faults.campaign.tasks import LOCAL, Plans
from tests.faults.test_kills import FILE, POOLS
from tests.faults.victims import ALL
from tests.waiting import LOOK_AGAIN, slack

SOURCE = Path(campaign.__file__).with_name("wall_clock.c")
# The controllers ask the database for the time, and libraries rarely read the clock there. Each has
# one round, which counts as no fault without a reading. Then the others take turns.
SILENT = ("allocate", "finalize", "scale", "watch")
READERS = ("web", "relay", "worker")
HOUR = 3600
READ_WITHIN = 10.0


def count_faults(name: str, readings: int) -> int:
    """A wrong clock that no process reads is no fault."""
    if not readings and name not in SILENT:
        raise NotInjectedError(f"{name} did not read its wrong clock")
    return 1 if readings else 0


@scenario
class ClockOff(SiteScenario):
    name = "clock-off"
    breaks = "the clock of one process jumps by an hour and back"
    counts_from = "the jump"

    @classmethod
    def why_skipped(cls) -> str:
        return "" if shutil.which("cc") else "no C compiler (cc) for the library of the clock"

    def prepare(self) -> None:
        library, self.clocks = self.folder / "wall_clock.so", self.folder / "clocks"
        subprocess.run(["cc", "-shared", "-fPIC", "-O1", "-o", library, SOURCE], check=True)
        self.clocks.mkdir()
        for name in (*SILENT, *READERS, "sample"):
            self.set_clock(name, 0)
        stack = Stack(
            self.folder / "state",
            free_port(),
            BERTH_APART="1",
            BERTH_QUEUES="shed",
            DJANGO_SETTINGS_MODULE="tests.faults.settings",
            BERTH_TEST_CLOCKS=str(self.clocks),
            BERTH_TEST_CLOCK_LIBRARY=str(library),
        )
        stack.module = "tests.faults.campaign.up_with_clocks"
        self.site = Site(self.folder, f"{FILE}---{LOCAL}", stack=stack)
        self.plans = Plans(self.site)
        self.plans.wait_served(0.0)
        self.site.start_callers(POOLS, 2)

    def set_clock(self, name: str, seconds: int) -> None:
        """In place, because the process has mapped the file."""
        file = self.clocks / name
        with file.open("r+b" if file.exists() else "w+b") as opened:
            opened.write(struct.pack("qq", seconds, 0))

    def count_readings(self, name: str) -> int:
        return int(struct.unpack("qq", (self.clocks / name).read_bytes())[1])

    def wait_readings(self, name: str) -> int:
        end = time.monotonic() + READ_WITHIN * slack()
        while not (readings := self.count_readings(name)):
            if name in SILENT or time.monotonic() > end:
                break
            time.sleep(LOOK_AGAIN)
        return readings

    def choose_process(self, number: int) -> str:
        first = len(SILENT)
        return SILENT[number] if number < first else self.pick(READERS, number - first)

    def round(self, chance: random.Random, number: int) -> Outcome:
        name = self.choose_process(number)
        seconds = chance.choice((-HOUR, HOUR))
        pid = self.site.stack.wait_for_process(ALL[name])
        if str(self.clocks / name) not in Path(f"/proc/{pid}/maps").read_text():
            raise NotInjectedError(f"{name} has another clock")
        self.set_clock(name, seconds)
        jumped_at = time.monotonic()
        try:
            self.plans.wait_served(jumped_at)
            again = self.site.wait_served(POOLS, jumped_at)
            # Chores of a longer period see the wrong clock, too.
            time.sleep(chance.uniform(0, 3))
            readings = self.wait_readings(name)
        finally:
            self.set_clock(name, 0)
        self.site.wait_served(POOLS, time.monotonic())
        fault = f"clock of {name} {seconds:+d} s, read {readings} times"
        findings = [*self.plans.find_broken(), *self.find_lost()]
        return Outcome(fault, again, count_faults(name, readings), findings)

    def find_lost(self) -> list[str]:
        """Claims that expired, and members that were taken for silent or lost."""
        rows = self.site.stack.execute(
            "select 'claim ' || id || ' ended ' || outcome from claims_claim "
            "where state = 'ended' and outcome not in ('released', 'planned') union all "
            "select 'member ' || name || ' is ' || state from pools_member where state <> 'ready'"
        )
        return [row[0] for row in rows]

    def verify(self) -> list[str]:
        self.site.stack.wait_rows(
            "select count(*) from claims_claim where state in ('waiting', 'blocked')",
            lambda rows: rows == [(0,)],
            within=WITHIN,
        )
        return self.site.verify()
