"""The disk of the database and of all files is full."""

import errno
import os
import random
import subprocess
import time

import psycopg

from project.kernel.embedded.process import free_port
from tests.end_to_end.stack import Stack
from tests.faults.campaign.scenario import NotInjectedError, Outcome, scenario
from tests.faults.campaign.site import Site, SiteScenario
from tests.faults.test_kills import FILE, POOLS

SIZE = "800m"
PIECE = 1 << 20
SWITCHES = 60  # of segments of the write-ahead log: more than PostgreSQL keeps for later


@scenario
class DiskFull(SiteScenario):
    name = "disk-full"
    breaks = "the disk of PostgreSQL and of BERTH_HOME is full: a tmpfs of 800 MB"
    counts_from = "the return of free space"

    @classmethod
    def why_skipped(cls) -> str:
        if os.geteuid() != 0:
            return "only root may mount a small disk"
        tried = subprocess.run(
            ["unshare", "--mount", "mount", "-t", "tmpfs", "tmpfs", "/mnt"], capture_output=True
        )
        return "" if tried.returncode == 0 else f"no mount here: {tried.stderr.decode().strip()}"

    def prepare(self) -> None:
        self.disk = self.folder / "disk"
        self.disk.mkdir()
        subprocess.run(
            ["mount", "-t", "tmpfs", "-o", f"size={SIZE},mode=711", "tmpfs", self.disk], check=True
        )
        stack = Stack(
            self.disk / "state",
            free_port(),
            BERTH_APART="1",
            BERTH_QUEUES="shed",
            DJANGO_SETTINGS_MODULE="tests.faults.settings",
        )
        self.site = Site(self.folder, FILE, stack=stack)
        self.site.start_callers(POOLS, 2)

    def round(self, chance: random.Random, number: int) -> Outcome:
        way = self.pick(("tables", "log"), number)
        seconds = chance.uniform(0.3, 3)
        filler = self.disk / "filler"
        try:
            self.fill()
            refusal = self.provoke_log() if way == "log" else self.provoke_tables()
            time.sleep(seconds)  # how long it is full
            if os.statvfs(self.disk).f_bavail > 8:
                self.fill()
        finally:
            filler.unlink(missing_ok=True)
        again = self.site.wait_served(POOLS, time.monotonic())
        self.site.stack.execute("drop table if exists campaign_filler")
        fault = f"no space for {way}, {seconds:.1f} s: {refusal}"
        return Outcome(fault, again, findings=self.site.find_broken())

    def fill(self) -> None:
        """Until a write of one byte is refused."""
        with (self.disk / "filler").open("ab", buffering=0) as file:
            for size in (PIECE, 4096, 1):
                try:
                    while True:
                        file.write(b"x" * size)
                except OSError as error:
                    if error.errno != errno.ENOSPC:
                        raise

    def provoke_tables(self) -> str:
        """A table that does not fit is refused."""
        try:
            self.site.stack.execute(
                "create unlogged table campaign_filler as "
                "select g, repeat('x', 500) from generate_series(1, 20000) g"
            )
        except psycopg.errors.DiskFull as error:
            return str(error).split("\n")[0]
        except psycopg.Error as error:  # the log had no space sooner
            return f"PostgreSQL ended: {str(error).splitlines()[0]}"
        raise NotInjectedError("PostgreSQL had space for a table")

    def provoke_log(self) -> str:
        """The log needs a new file, until PostgreSQL cannot write it and ends."""
        for _ in range(SWITCHES):
            try:
                with self.site.stack.connect(1.0) as connection:
                    connection.autocommit = True
                    connection.execute("select txid_current()")
                    connection.execute("select pg_switch_wal()")
            except psycopg.Error as error:
                return f"PostgreSQL: {str(error).splitlines()[0]}"
        raise NotInjectedError("PostgreSQL had space for its log")

    def close(self) -> None:
        (self.disk / "filler").unlink(missing_ok=True)
        try:
            super().close()
        finally:
            subprocess.run(["umount", "--lazy", self.disk], check=False)
