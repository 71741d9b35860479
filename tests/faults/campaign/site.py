"""The stack of a scenario: a real `up` with pools, callers under load, traps, and audits."""

import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import psycopg

from pools.providers.local import agent_folder
from project.kernel.embedded.process import free_port
from tests.end_to_end.stack import Stack
from tests.faults.campaign.scenario import NotInjectedError, Scenario
from tests.faults.checks import audit, check_doctor, check_promises, check_world
from tests.faults.load import Caller, Keeper, Ledger
from tests.faults.traps import Trap, close_trap, install, list_clients, open_trap, remove
from tests.faults.victims import list_owners
from tests.waiting import LOOK_AGAIN, slack

WITHIN = 60.0  # seconds in which the system has to serve again; on a busy machine twice as many
TRAPPED_WITHIN = 10.0
OTHERS_FOR = 0.5  # seconds for which a trap holds others than the victim
STATE = {
    "open claims": "select p.name, c.id, c.state, c.size from claims_claim c "
    "join pools_pool p on p.id = c.pool_id where c.state <> 'ended' order by 1, 2",
    "members": "select p.name, m.id, m.state from pools_member m "
    "join pools_pool p on p.id = m.pool_id where m.state <> 'gone' order by 1, 2",
    "slots": "select member_id, state, count(*) from slots_slot group by 1, 2 order by 1, 2",
    "open operations": "select lane, attempts, extract(epoch from due_at - now())::int, error "
    "from kernel_operation where done_at is null order by 1, 3 limit 20",
    "locks": "select a.pid, a.state, a.wait_event_type, l.locktype, l.classid, l.objid, l.granted, "
    "left(a.query, 80) from pg_locks l join pg_stat_activity a on a.pid = l.pid "
    "where l.locktype = 'advisory' or not l.granted order by 1 limit 20",
    "beats": "select name, instance, extract(epoch from now() - at)::int, error from kernel_beat "
    "order by 1, 2",
}


class Site:
    def __init__(
        self, folder: Path, pools: str, *, stack: Stack | None = None, **environment: str
    ) -> None:
        self.world = folder / "world"
        os.environ["BERTH_TEST_WORLD"] = str(self.world)
        settings = {
            "BERTH_APART": "1",
            "BERTH_QUEUES": "shed",
            "DJANGO_SETTINGS_MODULE": "tests.faults.settings",
            **environment,
        }
        self.stack = stack or Stack(folder / "state", free_port(), **settings)
        self.stack.environment["BERTH_TEST_WORLD"] = str(self.world)
        self.stack.start(180)
        self.ledger = Ledger()
        self.callers: list[Caller] = []
        self.traps: Sequence[Trap] = ()
        try:
            if pools:
                (folder / "pools.yaml").write_text(pools)
                done = self.stack.manage("apply", "-f", str(folder / "pools.yaml"))
                assert done.returncode == 0, done.stderr + done.stdout
            made = self.stack.manage("token", "create", "admin", "campaign")
            assert made.returncode == 0, made.stderr
        except BaseException:
            self.close()
            raise
        self.token = made.stdout.strip()
        self.client = self.make_caller("campaign", "")

    def make_caller(self, name: str, pool: str) -> Caller:
        return Caller(name, self.stack.port, self.token, pool, self.ledger)

    def close(self) -> None:
        self.stop_callers()
        assert self.stack.process is not None
        if self.stack.process.poll() is None:
            self.stack.stop()
        # With the working folders of agents, which are elsewhere.
        for folder in (self.stack.home / agent_folder.FOLDER).glob("*"):
            agent_folder.remove(folder)

    # -- load -------------------------------------------------------------------------------------
    def start_callers(self, pools: Sequence[str], callers: int, port: int = 0) -> None:
        """One keeper and some callers for each pool; `port`: of a proxy before the web process."""
        at = (port or self.stack.port, self.token)
        self.callers += [Keeper(f"keeper-{pool}", *at, pool, self.ledger) for pool in pools]
        self.callers += [
            Caller(f"caller{n}-{pool}", *at, pool, self.ledger)
            for pool in pools
            for n in range(callers)
        ]
        for caller in self.callers:
            caller.start()
        self.wait_served(tuple(pools), 0.0)

    def stop_callers(self) -> None:
        for caller in self.callers:
            caller.stopped.set()
        for caller in self.callers:
            caller.join(90)

    def wait_served(self, pools: Sequence[str], since: float) -> float:
        """Seconds from `since` until a claim that was asked for after it is bound, in each pool."""
        limit = WITHIN * slack()
        served = self.ledger.wait_served(tuple(pools), since, limit)
        if not served:
            left = [pool for pool in pools if self.ledger.served_from[pool] <= since]
            raise AssertionError(
                f"no claim of {', '.join(left)} was served in {limit:.0f} s: {self.describe()}; "
                f"{self.stack.heard[-1500:]}"
            )
        return time.monotonic() - since if since else 0.0

    def describe(self) -> str:
        """Why no claim may be served: dead callers, and what the rows and locks say."""
        found = [f"caller errors {self.find_errors()}"]
        for name, query in STATE.items():
            try:
                found.append(f"{name} {self.stack.execute(query)}")
            except psycopg.Error as error:
                found.append(f"{name}: {error}")
        return "; ".join(found)

    def call(self, method: str, path: str, body: Any = None, key: str = "") -> Any:
        status, answer = self.client.call(method, path, body, key)
        assert status < 300, (method, path, status, answer)
        return answer

    # -- traps ------------------------------------------------------------------------------------
    def install_traps(self, traps: Sequence[Trap]) -> None:
        self.traps = traps
        with self.stack.connect() as connection, connection.cursor() as cursor:
            install(cursor, traps)

    def remove_traps(self) -> None:
        with self.stack.connect() as connection, connection.cursor() as cursor:
            remove(cursor, self.traps)

    @contextmanager
    def trapped(
        self, name: str, victim: str = "", provoke: Callable[[], Any] = lambda: None
    ) -> Iterator[tuple[set[str], Callable[[], None]]]:
        """A process stands in this trap, inside its transaction: the victim, if it performs the
        step, otherwise any. Yields the names of all that stand there, and a function that opens
        the trap early. `provoke` makes a process walk into it.
        """
        number = [trap.name for trap in self.traps].index(name)
        is_performer = victim in self.traps[number].performers
        connection = self.stack.connect()
        connection.autocommit = True
        cursor = connection.cursor()

        def open_early() -> None:
            with suppress(psycopg.Error):  # the server died, and the lock with it
                open_trap(cursor, number)

        try:
            close_trap(cursor, number)
            provoke()
            end = time.monotonic() + TRAPPED_WITHIN * slack()
            next_at = 0.0
            while True:
                clients = list_clients(cursor, number)
                standing = list_owners(self.stack, clients) if clients else set()
                if standing and (not is_performer or victim in standing):
                    break
                now = time.monotonic()
                if now > end:
                    raise NotInjectedError(
                        f"{victim if is_performer else 'no process'} does not come to {name!r}"
                    )
                if standing and now > next_at:  # another process holds what the victim needs
                    if next_at:
                        open_trap(cursor, number)
                        close_trap(cursor, number)
                    next_at = now + OTHERS_FOR
                time.sleep(LOOK_AGAIN)
            yield standing, open_early
        finally:
            with suppress(psycopg.Error):
                connection.close()

    # -- audits -----------------------------------------------------------------------------------
    def find_broken(self) -> list[str]:
        """After each round: promises and rows. Each finding is reported once."""
        with self.ledger.change:
            broken, self.ledger.broken = self.ledger.broken, []
        return [
            *broken,
            *(f"{what}: {count}" for what, count in audit(self.stack).items()),
            *self.find_errors(),
        ]

    def find_errors(self) -> list[str]:
        found = [f"{c.name}: {c.error!r}" for c in self.callers if c.error]
        for caller in self.callers:
            caller.error = None
        return found

    def verify(self, *more: Callable[[], None]) -> list[str]:
        """At the end: the load stops, and all audits run."""
        self.stop_callers()
        if self.traps:
            self.remove_traps()
        checks = [
            lambda: check_promises(self.stack, self.ledger),
            lambda: check_world(self.stack),
            *more,
            lambda: check_doctor(self.stack),
        ]
        return [*self.find_broken(), *collect(checks)]


def collect(checks: Sequence[Callable[[], None]]) -> list[str]:
    """The texts of the failed checks."""
    found = []
    for check in checks:
        try:
            check()
        except AssertionError as error:
            found.append(str(error))
    return found


class SiteScenario(Scenario):
    """A scenario whose `prepare` starts a site."""

    site: Site

    def verify(self) -> list[str]:
        return self.site.verify()

    def read_logs(self) -> str:
        """Of `make up`, and files of other processes."""
        heard = self.site.stack.heard if hasattr(self, "site") else ""
        files = [f"{file.name}:\n{file.read_text()}" for file in self.folder.glob("*.log")]
        return "\n".join([heard, *files])

    def close(self) -> None:
        if hasattr(self, "site"):  # else `prepare` has failed
            self.site.close()
