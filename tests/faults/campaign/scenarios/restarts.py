"""The database and Valkey die, restart, lose their data, or freeze."""

import os
import random
import signal
import time
from collections.abc import Callable, Mapping
from typing import ClassVar

import psycopg
import redis

from tests.end_to_end.stack import command_of, wait_gone
from tests.faults.campaign.scenario import NotInjectedError, Outcome, scenario
from tests.faults.campaign.site import Site, SiteScenario
from tests.faults.test_kills import FILE, POOLS
from tests.faults.victims import VICTIMS, kill_process
from tests.waiting import wait_until

CALLERS = 2


class Restarts(SiteScenario):
    ways: ClassVar[Mapping[str, Callable[["Restarts", random.Random], None]]]

    def prepare(self) -> None:
        self.site = Site(self.folder, FILE)
        self.site.start_callers(POOLS, CALLERS)

    def round(self, chance: random.Random, number: int) -> Outcome:
        way = self.pick(tuple(self.ways), number)
        self.ways[way](self, chance)
        again = self.site.wait_served(POOLS, time.monotonic())
        return Outcome(way, again, findings=self.site.find_broken())

    # -- ways -------------------------------------------------------------------------------------
    def end(self, victim: str, number: signal.Signals) -> None:
        pid = self.site.stack.wait_for_process(VICTIMS[victim])
        os.kill(pid, number)
        if wait_gone([pid], 30):
            raise NotInjectedError(f"{victim} does not end by {number.name}")

    def freeze(self, victim: str, chance: random.Random) -> None:
        pid = self.site.stack.wait_for_process(VICTIMS[victim])
        os.kill(pid, signal.SIGSTOP)
        try:
            time.sleep(chance.uniform(1, 4))  # how long it is frozen
        finally:
            os.kill(pid, signal.SIGCONT)


@scenario
class RestartDatabase(Restarts):
    name = "restart-database"
    breaks = "PostgreSQL restarts in each way, is killed, or loses one or all of its sessions"

    def end_sessions(self, chance: random.Random) -> None:
        ended = self.site.stack.execute(
            "select pg_terminate_backend(pid) from pg_stat_activity "
            "where pid <> pg_backend_pid() and backend_type = 'client backend'"
        )
        if not ended:
            raise NotInjectedError("no sessions")

    def kill_backend(self, chance: random.Random) -> None:
        """All other server processes end with it, and the database recovers."""
        pids = self.site.stack.execute(
            "select pid from pg_stat_activity where pid <> pg_backend_pid() "
            "and backend_type = 'client backend' order by pid"
        )
        kill_process(chance.choice(pids)[0])
        end = time.monotonic() + 30
        while True:  # the recovery is the proof
            try:
                self.site.stack.execute("select 1")
                break
            except psycopg.Error:
                if time.monotonic() > end:
                    raise

    ways = {
        "kill -9 of PostgreSQL": lambda self, chance: self.end("postgres", signal.SIGKILL),
        "smart shutdown": lambda self, chance: self.end_smart(),
        "fast shutdown": lambda self, chance: self.end("postgres", signal.SIGINT),
        "immediate shutdown": lambda self, chance: self.end("postgres", signal.SIGQUIT),
        "all sessions are ended": lambda self, chance: self.end_sessions(chance),
        "kill -9 of one server process": lambda self, chance: self.kill_backend(chance),
    }

    def end_smart(self) -> None:
        """A smart shutdown waits for all sessions, which keep working, and a fast one follows."""
        pid = self.site.stack.wait_for_process(VICTIMS["postgres"])
        os.kill(pid, signal.SIGTERM)
        if wait_gone([pid], 1.0):
            os.kill(pid, signal.SIGINT)
        if wait_gone([pid], 30):
            raise NotInjectedError("PostgreSQL does not end")


def is_back(connection: "redis.Redis") -> bool:
    try:
        return bool(connection.ping())
    except redis.ConnectionError:
        return False


@scenario
class RestartValkey(Restarts):
    name = "restart-valkey"
    breaks = "Valkey restarts, is killed, forgets everything, or stands still for seconds"

    def flush(self, chance: random.Random) -> None:
        url = self.site.stack.services()["REDIS_URL"]
        with redis.Redis.from_url(url) as connection:
            # Claims are served without Valkey, which may not have come back from the last round.
            wait_until(lambda: is_back(connection), "Valkey does not come back")
            connection.set("campaign", "1")
            connection.flushall()
            if connection.get("campaign"):
                raise NotInjectedError("Valkey has forgotten nothing")

    ways = {
        "kill -9 of Valkey": lambda self, chance: self.end("valkey", signal.SIGKILL),
        "Valkey ends by TERM": lambda self, chance: self.end("valkey", signal.SIGTERM),
        "Valkey forgets everything": lambda self, chance: self.flush(chance),
        "Valkey stands still": lambda self, chance: self.freeze("valkey", chance),
    }


@scenario
class RestartStack(Restarts):
    name = "restart-stack"
    breaks = "`make up` itself is killed or ended with all its processes, and started again"
    counts_from = "the start of the next `make up`"

    def stop_all(self, number: signal.Signals) -> None:
        """No process may outlive the supervisor, whose death the kernel tells its children."""
        stack = self.site.stack
        pids = [*stack.list_processes()]
        stack.stop(number)
        if left := wait_gone(pids, 30):
            names = [command_of(pid)[:80] for pid in left]
            raise AssertionError(f"processes outlive `make up`: {names}")

    ways = {
        "kill -9 of `make up`": lambda self, chance: self.stop_all(signal.SIGKILL),
        "`make up` ends by TERM": lambda self, chance: self.stop_all(signal.SIGTERM),
        "`make up` ends by Ctrl-C": lambda self, chance: self.stop_all(signal.SIGINT),
    }

    def round(self, chance: random.Random, number: int) -> Outcome:
        way = self.pick(tuple(self.ways), number)
        self.ways[way](self, chance)
        began = time.monotonic()
        self.site.stack.start(180)
        again = self.site.wait_served(POOLS, began)
        return Outcome(way, again, findings=self.site.find_broken())
