"""Random steps on pools of ports: callers, operators, the cloud and its failures, workers that die.

Each step is followed by the invariants, and each run by `close`: after the failures have stopped
and all operations are performed, the cloud has exactly what the rows say.
"""

import sys

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from claims.allocation.create import create_claim
from claims.allocation.requests.claim_request import parse_claim
from claims.allocation.requests.resolve import forget_routes
from claims.allocation.selectors import view_claim
from claims.lifecycle.cancel import cancel_claim
from claims.ports.backends import BackendRequest, set_backend
from pools.lifecycle.services import create_pool
from slots.members.services import cordon_member, remove_member, uncordon_member
from slots.models import Slot
from tests.claims.ports.model.oracle import Oracle, Wanted, Wish
from tests.claims.ports.model.outside import FAULTS
from tests.claims.ports.model.processes import PortProcesses
from tests.claims.ports.model.rows import OutsidePlace
from tests.claims.ports.model.wishes import (
    AT_ONCE,
    BACKENDS,
    QUOTA,
    SPANS,
    WISHES,
    write_claim,
    write_pool,
)
from tests.database import helpers

UNCERTAIN = ("unanswered after", "killed")  # the worker does not know that its write has an effect
# How the workers perform at once: not at all, without a fault, or with one.
FAULT = st.sampled_from([None, "", "", *FAULTS])
STEP = st.integers(0, 20)  # the call that meets a fault


class PortPools(PortProcesses, RuleBasedStateMachine):
    @initialize(
        wishes=st.lists(st.sampled_from(WISHES), min_size=3, max_size=8),
        fault=st.sampled_from(UNCERTAIN),
    )
    def begin(self, wishes: list[Wanted], fault: str) -> None:
        helpers.empty()
        self._restart_ids()
        forget_routes()
        cloud = self.outside
        cloud.begin()
        self.oracle = Oracle(cloud.lanes, tuple(SPANS))
        self.cordoned, self.leaving, self.generations = set(), set(), {}
        self.draining, self.stale = set(), set()
        self.pools = {name: create_pool(write_pool(name, cloud)) for name in SPANS}
        self.foreign = cloud.foreign()
        self._perform_all()
        for name in SPANS:
            self._look(name)
        self._note()
        self.come_and_go(AT_ONCE, fault, 0)
        self.nothing_of_berth_is_left_in_a_free_place()  # before the next claim takes the place
        for _ in range(2):  # the target belongs to the first of them
            self.claim(AT_ONCE, BACKENDS[0], "", 0)
        self._check_ready()
        for wanted in wishes:
            self.claim(wanted, BACKENDS[0], None, 0)

    # -- what callers do ---------------------------------------------------------------------------

    @rule(wanted=st.sampled_from(WISHES), ip=st.sampled_from(BACKENDS), fault=FAULT, step=STEP)
    def claim(self, wanted: Wanted, ip: str, fault: str | None, step: int) -> None:
        """A claim, perhaps with a backend, which a worker serves at once."""
        wish = self._create(wanted)
        if wish.state == "bound" and ip:
            self._route(wish, ip)
        if fault is not None:
            self._perform_with(fault, step)

    def _create(self, wanted: Wanted) -> Wish:
        before = self.oracle.in_state("waiting")
        free = self._free()
        must = self.oracle.must_bind(wanted, free, before)
        body = write_claim(wanted, self.outside.certificate)
        made = create_claim(parse_claim(body, requested_by="ana"))
        wish = self.oracle.create(made.id, wanted)
        if must is not None:
            assert (made.state == "bound") is must, f"{made.state}: {wanted}"
        self._note_bound([wish], free)
        return wish

    @rule(data=st.data())
    @precondition(lambda self: self.oracle.in_state("bound"))
    def route(self, data: st.DataObject) -> None:
        """Another backend for a claim that has one, if there is such a claim."""
        bound = self.oracle.in_state("bound")
        wish = data.draw(st.sampled_from([each for each in bound if each.ip] or bound))
        self._route(wish, data.draw(st.sampled_from([ip for ip in BACKENDS if ip != wish.ip])))

    def _route(self, wish: Wish, ip: str) -> None:
        asked = None
        if ip:
            port = wish.wanted.parts[0].port if wish.wanted.is_plain else None
            asked = BackendRequest(ip, port=port)
        set_backend(claim_id=wish.id, generation=self.generations[wish.id], backend=asked)
        self.oracle.set_backend(wish, ip)

    @rule(data=st.data(), most=st.integers(1, 3), fault=FAULT, step=STEP)
    @precondition(lambda self: self.oracle.in_state("bound"))
    def release(self, data: st.DataObject, most: int, fault: str | None, step: int) -> None:
        for _ in range(min(most, len(self.oracle.in_state("bound")))):
            self.release_one(self._draw(data, "bound"))
        if fault is not None:
            self._perform_with(fault, step)

    @rule(wanted=st.sampled_from(WISHES), fault=st.sampled_from(FAULTS), step=st.integers(0, 2))
    def come_and_go(self, wanted: Wanted, fault: str, step: int) -> None:
        """A claim is released before the cloud has done what a worker has begun."""
        wish = self._create(wanted)
        self.outside.become_slow()
        self.outside.fail_write(fault, step)
        self._perform_with("", 0)
        if wish.state == "bound":
            self.release_one(wish)
        self._perform_with("", 0)
        self.outside.pass_time()

    @rule(data=st.data())
    @precondition(lambda self: self.oracle.in_state("waiting"))
    def cancel(self, data: st.DataObject) -> None:
        wish = self._draw(data, "waiting")
        assert cancel_claim(claim_id=wish.id).outcome == "cancelled"
        self.oracle.end(wish, "cancelled")

    # -- what Berth's own processes do -------------------------------------------------------------

    @rule()
    def allocate(self) -> None:
        self.serve_claims()

    @rule()
    def scale(self) -> None:
        self.scale_games()

    @rule()
    def run_chores(self) -> None:
        self.finalize()

    @rule(fault=FAULT, step=STEP, is_late=st.booleans())
    def perform(self, fault: str | None, step: int, is_late: bool) -> None:
        if is_late:
            self.outside.pass_time()
        self._perform_with(fault, step)

    def _perform_with(self, fault: str | None, step: int) -> None:
        """`fault` None or empty: all calls succeed."""
        if fault:
            self.outside.fail(fault, step)
        self._perform()
        self.outside.heal()
        self._note()

    @rule(
        name=st.sampled_from(tuple(SPANS)),
        fault=st.sampled_from([None, None, *FAULTS]),
        step=st.integers(0, 5),
    )
    def look(self, name: str, fault: str | None, step: int) -> None:
        if fault is not None:
            self.outside.fail(fault, step)
        self._look(name)
        self.outside.heal()
        self._note()

    # -- what operators do -------------------------------------------------------------------------

    @rule(data=st.data(), is_open=st.booleans())
    def cordon_or_uncordon(self, data: st.DataObject, is_open: bool) -> None:
        member = data.draw(st.sampled_from(self._members()))
        if member.pk in self.leaving or member.lost_at is not None:
            return
        if is_open:
            uncordon_member(member_id=member.pk)
            self.cordoned.discard(member.pk)
        else:
            cordon_member(member_id=member.pk, reason="test")
            self.cordoned.add(member.pk)

    @rule(data=st.data(), chance=st.integers(0, 3))
    def remove(self, data: st.DataObject, chance: int) -> None:
        mine = [each for each in self._members() if each.is_owned and each.lost_at is None]
        if chance or not mine:
            return
        member = data.draw(st.sampled_from(mine))
        remove_member(member_id=member.pk, reason="test")
        self.leaving.add(member.pk)
        self._note()

    @rule()
    def add(self) -> None:
        self.add_fixed()

    # -- what happens in the cloud -----------------------------------------------------------------

    @rule()
    def become_slow(self) -> None:
        """What the cloud has accepted takes effect later."""
        self.outside.become_slow()

    @rule(data=st.data(), lane=st.sampled_from(["tcp", "udp"]), offset=st.integers(0, 4))
    def appear(self, data: st.DataObject, lane: str, offset: int) -> None:
        """A listener of another program, where no listener is."""
        member = data.draw(st.sampled_from(self._members()))
        name = member.pool.name
        if not member.external_id or name == "fixed":
            return
        number = SPANS[name][0] + offset
        lane = lane if lane in self.outside.lanes else self.outside.lanes[0]
        place = (member.external_id, lane, number)
        known = {each.place for each in self.outside.listeners()}
        if place in known or not self._exists(member.external_id):
            return
        self.outside.add_foreign(member.external_id, lane, number)
        self._changed(place)

    @rule(data=st.data())
    def disappear(self, data: st.DataObject) -> None:
        theirs = [each for each in self.outside.listeners() if not each.is_ours]
        if theirs:
            listener = data.draw(st.sampled_from(theirs))
            self.outside.remove_listener(listener)
            self._changed(listener.place)

    @rule(data=st.data())
    def delete_ours(self, data: st.DataObject) -> None:
        ours = [each for each in self.outside.listeners() if each.is_ours]
        if ours:
            listener = data.draw(st.sampled_from(ours))
            self.outside.remove_listener(listener)
            self._changed(listener.place)

    @rule(data=st.data())
    def change_ours(self, data: st.DataObject) -> None:
        ours = [each for each in self.outside.listeners() if each.is_ours]
        if ours:
            listener = data.draw(st.sampled_from(ours))
            self.outside.retarget(listener)
            self._changed(listener.place)

    @rule(data=st.data(), chance=st.integers(0, 3))
    def lose_balancer(self, data: st.DataObject, chance: int) -> None:
        found = sorted(self.outside.own_balancers())
        if chance or not found:
            return
        balancer = data.draw(st.sampled_from(found))
        for each in self.outside.listeners():
            if each.balancer == balancer:
                self.stale.add(each.place)
        self.outside.remove_balancer(balancer)
        self.foreign = self.outside.foreign()

    def _changed(self, place: OutsidePlace) -> None:
        self.stale.add(place)
        self.foreign = self.outside.foreign()

    def _exists(self, balancer: str) -> bool:
        return balancer in {self.outside.users_id, *self.outside.own_balancers()}

    def _draw(self, data: st.DataObject, state: str) -> Wish:
        return data.draw(st.sampled_from(self.oracle.in_state(state)))

    # -- what is true at every moment --------------------------------------------------------------

    @property
    def has_begun(self) -> bool:
        return hasattr(self, "pools")

    @invariant()
    def rows_agree_with_the_oracle(self) -> None:
        if self.has_begun:
            self.check_rows()

    @invariant()
    def foreign_objects_are_untouched(self) -> None:
        if self.has_begun:
            self.check_foreign()

    @invariant()
    def load_balancers_keep_their_quota(self) -> None:
        if not self.has_begun:
            return
        for member in self._members():
            offered = Slot.objects.filter(member=member).exclude(state="retired").count()
            assert offered <= QUOTA[member.pool.name], f"{member.name} offers {offered} ports"
        balancers = {m.external_id: m.pool.name for m in self._members() if m.is_owned}
        counts: dict[str, int] = {}
        for each in self.outside.listeners():
            counts[each.balancer] = counts.get(each.balancer, 0) + each.is_ours
        for balancer, count in counts.items():
            name = balancers.get(balancer, "west")
            assert count <= QUOTA[name], f"{balancer} of {name} has {count} listeners"

    @invariant()
    def no_claim_is_ready_whose_listener_is_not(self) -> None:
        if not self.has_begun:
            return
        there = {each.place: each for each in self.outside.listeners()}
        for wish in self.oracle.in_state("bound"):
            conditions = {each["type"]: each for each in view_claim(wish.id).conditions}
            if not conditions["ready"]["is_met"]:
                continue
            assert wish.ip, "a claim without a backend is not ready"
            for each in self._listeners_of(wish):
                is_stale = self._outside_place(each[0]) in self.stale
                assert is_stale or self._works(each, there), f"{wish} is ready without {each}"

    @invariant()
    def nothing_of_berth_is_left_in_a_free_place(self) -> None:
        """A pre-created listener stays, without a target."""
        if not self.has_begun:
            return
        ours = {each.place: each for each in self.outside.listeners() if each.is_ours}
        rows = Slot.objects.filter(state="idle", member__state="ready").select_related(
            "member__pool"
        )
        for row in rows if ours else ():
            lane = row.lane if row.lane in self.outside.lanes else self.outside.lanes[0]
            place = (row.member.external_id, lane, row.number)
            found = ours.get(place)
            if found is None or place in self.stale:
                continue
            is_kept = row.member.pool.name == "fixed" and not found.is_used
            assert is_kept, f"{row.lane} {row.number} is free, and there is {found}"

    def teardown(self) -> None:
        if self.has_begun and sys.exc_info()[0] is None:
            self.close()
