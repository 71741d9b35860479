"""The workers, the watcher and the finalizer of the model-based test, and its end: the failures
stop, and the cloud has exactly what the rows say.
"""

from datetime import UTC, datetime, timedelta
from typing import Any

from django.db import connection
from django.db.models import DurationField, ExpressionWrapper, F, Value

from claims.allocation.selectors import view_claim
from claims.lifecycle.chores import end_claims_of_deleted_pools, lose_claims
from claims.lifecycle.pool_deletion import delete_pool
from claims.lifecycle.release import release_claim
from claims.models import Claim
from claims.ports.backends import settle_conflicts
from claims.scaling.scaler import scale_pools
from pools.models import Member, Pool
from project.kernel.discovery import discover
from project.kernel.doctor.registry import Finding, examine
from project.kernel.models import Operation
from project.kernel.outbox.operations import ProviderError, perform_due
from slots.members.chores import (
    check_draining_slots,
    end_pools,
    finish_leaving_members,
    retry_syncs,
)
from slots.members.services import add_members, uncordon_member
from slots.members.store import request_sync
from slots.models import Slot
from slots.sync.drift import FOUND, list_drift
from slots.sync.orders import repair_slot
from slots.sync.watcher import observe_pool
from tests.claims.helpers import serve
from tests.claims.ports.model.oracle import Place, Wish
from tests.claims.ports.model.outside import FOREIGN_PORTS, WorkerKilled
from tests.claims.ports.model.rows import PortRows
from tests.claims.ports.model.wishes import MOST_MEMBERS, SPANS

CHORES = (
    check_draining_slots,
    retry_syncs,
    finish_leaving_members,
    lose_claims,
    end_claims_of_deleted_pools,
    end_pools,
)
discover("checks")  # of the doctor
LONG_AGO = datetime(2020, 1, 1, tzinfo=UTC)
ROUNDS = 60  # of performing until all is settled


class PortProcesses(PortRows):
    foreign: Any  # all that is not Berth's, as the test has left it

    def check_foreign(self) -> None:
        assert self.outside.foreign() == self.foreign

    def serve_claims(self) -> None:
        """The allocator, until it can bind no claim."""
        free = self._free()
        serve()
        self._note_bound(self.oracle.in_state("waiting"), free)
        self._check_waiting()

    def scale_games(self) -> None:
        scale_pools([self.pools["games"].pk])

    def release_one(self, wish: Wish) -> None:
        self.draining |= set(wish.held)
        found = release_claim(claim_id=wish.id, generation=self.generations[wish.id])
        assert found.outcome == "released"
        self.oracle.end(wish, "released")

    def _restart_ids(self) -> None:
        """Equal steps make equal ids, names and orders, as the random steps expect."""
        with connection.cursor() as cursor:
            for table in (Pool, Member, Slot, Claim, Operation):
                name = table._meta.db_table
                cursor.execute("SELECT setval(pg_get_serial_sequence(%s, 'id'), 1, false)", [name])

    def _perform(self) -> None:
        """All open operations, in the order of their ids."""
        due_at = Value(LONG_AGO) + ExpressionWrapper(
            F("id") * Value(timedelta(seconds=1)), output_field=DurationField()
        )
        Operation.objects.filter(done_at=None).update(due_at=due_at)
        try:
            perform_due(self.outside.kind)
        except WorkerKilled:
            self.outside.restart()

    def _look(self, name: str) -> None:
        try:
            observe_pool(Pool.objects.get(pk=self.pools[name].pk))
        except ProviderError:
            return  # the watcher looks again
        except WorkerKilled:
            self.outside.restart()
            return
        first, last = SPANS[name]
        self.stale = {place for place in self.stale if not first <= place[2] <= last}
        self._check_offered(name)

    def finalize(self) -> None:
        for step in CHORES:
            step()
        settle_conflicts()
        self.oracle.settle()
        self._note()

    # -- the end -----------------------------------------------------------------------------------

    def close(self) -> None:
        """All failures stop, and each claim is served in the end."""
        self._uncordon()
        self.add_fixed()
        for member in self._members():
            # The next change of a member corrects what no finding names: a target of another
            # program at a listener without a backend.
            request_sync(member.pool, member)
        self._settle()
        self._check_ready()
        self._remove_foreign()
        for _ in range(10):
            if not self.oracle.in_state("waiting"):
                break
            self.add_fixed()  # another load balancer may have been lost
            for wish in self.oracle.in_state("bound"):
                self.release_one(wish)
            self._settle()
        assert not self.oracle.in_state("waiting"), self.oracle.in_state("waiting")
        self._settle()
        self._check_equal()
        self._delete("west")
        self._settle()
        self._check_equal()

    def _uncordon(self) -> None:
        for member in self._members():
            if member.pk in self.cordoned:
                self.cordoned.discard(member.pk)
                if member.pk not in self.leaving and member.lost_at is None:
                    uncordon_member(member_id=member.pk)

    def add_fixed(self) -> None:
        """A member of the pool that an operator scales, if it has room."""
        pool = self.pools["fixed"]
        known = Member.objects.filter(pool=pool)
        if known.exclude(state="gone").count() < MOST_MEMBERS["fixed"]:
            add_members(pool_id=pool.pk, declared=[{"name": f"fixed-{known.count()}"}])

    def _remove_foreign(self) -> None:
        """Other programs leave the places of our slots."""
        for each in self.outside.listeners():
            if not each.is_ours and each.number not in FOREIGN_PORTS:
                self.outside.remove_listener(each)
        self.foreign = self.outside.foreign()

    def _delete(self, name: str) -> None:
        for wish in self.oracle.in_state("bound"):
            if name in wish.wanted.pools:
                self.release_one(wish)
        delete_pool(name, cascade=True, reason="test")

    def _perform_all(self) -> None:
        for _ in range(ROUNDS):
            self.outside.pass_time()
            if not Operation.objects.filter(done_at=None).exists():
                return
            self._perform()
        raise AssertionError(list(Operation.objects.filter(done_at=None).values("error", "kind")))

    def _settle(self) -> None:
        """Berth's processes, until nothing changes any more."""
        before = None
        for _ in range(ROUNDS):
            self.outside.restart()
            self.outside.pass_time()
            self._perform()
            self._note()
            for pool in self.pools.values():
                if Pool.objects.filter(pk=pool.pk).exclude(state="gone").exists():
                    self._look(pool.name)
                    self._note()
            for finding in list_drift():
                if finding.may_repair and finding.slot_id is not None:
                    repair_slot(slot_id=finding.slot_id, reason="test")
            self.finalize()
            self.scale_games()
            self.serve_claims()
            self.check_rows()
            self.check_foreign()
            after = self._state()
            if after == before:
                return
            before = after
        raise AssertionError(f"Berth does not come to rest: {before}")

    def _state(self) -> Any:
        return (
            self.outside.listeners(),
            sorted(self.outside.own_balancers()),
            sorted(Slot.objects.values_list("pk", "state")),
            sorted(Member.objects.values_list("pk", "state")),
            sorted(Claim.objects.values_list("pk", "state")),
            sorted(Operation.objects.filter(done_at=None).values_list("lane", "error")),
        )

    def _check_ready(self) -> None:
        """Each claim with a backend works, unless another program has its port, or another claim
        its target.
        """
        there = {each.place: each for each in self.outside.listeners()}
        for wish in self.oracle.in_state("bound"):
            view = view_claim(wish.id)
            wanted = self._listeners_of(wish)
            is_taken = any(
                (found := there.get(self._outside_place(place))) is not None and not found.is_ours
                for place, _, _ in wanted
            )
            is_routed = bool(wish.ip) and all(target for _, _, target in wanted)
            ready = next(each for each in view.conditions if each["type"] == "ready")
            assert ready["is_met"] is (is_routed and not is_taken), (ready, wanted)

    def _check_equal(self) -> None:
        """The cloud has exactly what the rows say, and the doctor finds nothing."""
        expected = {}
        for wish in self.oracle.in_state("bound"):
            for place, protocol, target in self._listeners_of(wish):
                targets = (target,) if target else ()
                expected[self._outside_place(place)] = (protocol, targets)
        fixed = Slot.objects.filter(member__pool__name="fixed", member__state="ready", state="idle")
        for slot in fixed.select_related("member__pool"):
            place = Place("fixed", slot.member_id, slot.lane, slot.number)
            expected[self._outside_place(place)] = (slot.lane, ())
        found = {
            each.place: (each.protocol, each.targets)
            for each in self.outside.listeners()
            if each.is_ours
        }
        assert found == expected, (found, expected)
        owned = Member.objects.filter(is_owned=True).exclude(state="gone")
        assert self.outside.own_balancers() == set(owned.values_list("external_id", flat=True))
        assert self.outside.find_orphans() == []
        findings = [each for report in examine() for each in report.findings]
        wrong = [each for each in findings if not self._is_of_user(each)]
        assert wrong == [], wrong

    @staticmethod
    def _is_of_user(finding: Finding) -> bool:
        """The finding names a listener of the user on the shared load balancer, which stays."""
        return finding.detail == FOUND["foreign"] and any(
            f" {number} " in finding.subject for number in FOREIGN_PORTS
        )
