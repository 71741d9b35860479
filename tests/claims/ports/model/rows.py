"""What the rows say, compared with the oracle and with the cloud."""

from collections.abc import Iterable
from typing import ClassVar

from claims.models import Claim
from pools.models import Member, Pool
from slots.models import Slot
from tests.claims.helpers import is_sound
from tests.claims.ports.model.oracle import Free, Oracle, Place, Wish
from tests.claims.ports.model.outside import Outside, SeenListener
from tests.claims.ports.model.wishes import QUOTA, SPANS

OutsidePlace = tuple[str, str, int]  # load balancer, lane of the cloud, number


class PortRows:
    outside: ClassVar[Outside]
    oracle: Oracle
    pools: dict[str, Pool]
    cordoned: set[int]  # members
    leaving: set[int]
    generations: dict[int, int]  # of the claims
    draining: set[Place]
    stale: set[OutsidePlace]  # changed outside since the last look

    def check_rows(self) -> None:
        states = {"released": "ended", "cancelled": "ended", "lost": "ended"}
        assert {row.pk: (row.state, row.outcome) for row in Claim.objects.all()} == {
            wish.id: (states.get(wish.state, wish.state), wish.state * (wish.state in states))
            for wish in self.oracle.wishes.values()
        }
        held = {
            Place(slot.member.pool.name, slot.member_id, slot.lane, slot.number): slot.claim_id
            for slot in Slot.objects.filter(state="held").select_related("member__pool")
        }
        assert held == self.oracle.holders()
        assert is_sound()

    def _listeners_of(self, wish: Wish) -> list[tuple[Place, str, str]]:
        return list(self.oracle.listeners_of(wish))

    def _works(
        self, wanted: tuple[Place, str, str], there: dict[OutsidePlace, SeenListener]
    ) -> bool:
        place, protocol, target = wanted
        found = there.get(self._outside_place(place))
        return (
            found is not None
            and found.is_ours
            and found.protocol == protocol
            and found.targets == ((target,) if target else ())
        )

    def _outside_place(self, place: Place) -> OutsidePlace:
        lane = place.lane if place.lane in self.outside.lanes else self.outside.lanes[0]
        return self._balancer_of(place.member), lane, place.number

    def _balancer_of(self, member: int) -> str:
        return Member.objects.values_list("external_id", flat=True).get(pk=member)

    # -- what the rows say of members and slots ----------------------------------------------------

    def _members(self) -> list[Member]:
        rows = Member.objects.exclude(state__in=("gone", "deleting")).select_related("pool")
        return list(rows.order_by("pk"))

    def _free(self) -> Free:
        """The places that the rows offer, on the members that may take claims."""
        taken = self.oracle.holders()
        rows = Slot.objects.filter(state="idle", member__state="ready", member__lost_at=None)
        places = set()
        positions = {}
        for slot in rows.select_related("member__pool"):
            if slot.member_id in self.cordoned | self.leaving:
                continue
            place = Place(slot.member.pool.name, slot.member_id, slot.lane, slot.number)
            assert place not in taken, f"{place} is idle, and claim {taken[place]} holds it"
            places.add(place)
            positions[slot.member_id] = slot.member.position
        return Free(places, positions)

    def _note_bound(self, wishes: Iterable[Wish], free: Free) -> None:
        """The claims that a step has bound, in the order of their binds: each got the places that
        the oracle names.
        """
        rows = {row.pk: row for row in Claim.objects.filter(pk__in=[wish.id for wish in wishes])}
        new = sorted(
            (wish for wish in wishes if rows[wish.id].state == "bound"),
            key=lambda wish: rows[wish.id].generation,
        )
        for wish in new:
            expected = self.oracle.fit(wish.wanted, free)
            found = self._held(wish)
            assert found == expected, f"{wish.wanted}: {found} and not {expected}"
            self.oracle.bind(wish, found)
            free.places -= set(found)
            self._note_generation(wish, rows[wish.id].generation)

    def _note_generation(self, wish: Wish, generation: int) -> None:
        assert generation > max(self.generations.values(), default=0)
        self.generations[wish.id] = generation

    def _held(self, wish: Wish) -> list[Place]:
        rows = Slot.objects.filter(claim_id=wish.id).select_related("member__pool")
        return [
            Place(row.member.pool.name, row.member_id, row.lane, row.number)
            for row in rows.order_by("ordinal")
        ]

    def _check_waiting(self) -> None:
        """A claim that fits waits only for an earlier claim of one of its pools."""
        free, before = self._free(), list[Wish]()
        for wish in self.oracle.in_state("waiting"):
            must = self.oracle.must_bind(wish.wanted, free, before)
            assert not must, f"claim {wish.id} fits and no claim waits before it: {wish.wanted}"
            before.append(wish)

    def _note(self) -> None:
        """What the rows say of slots that have drained and of claims on lost members."""
        self._note_clean()
        self._note_lost()

    def _note_clean(self) -> None:
        """A slot is free for the next claim only if nothing of the last one is left outside."""
        rows = {
            Place(row.member.pool.name, row.member_id, row.lane, row.number): row.state
            for row in Slot.objects.select_related("member__pool").exclude(state="held")
        }
        there = {each.place: each for each in self.outside.listeners() if each.is_ours}
        for place in sorted(self.draining):
            if rows.get(place) == "draining":
                continue
            self.draining.discard(place)
            if rows.get(place) != "idle":
                continue  # its member is lost or gone
            found = there.get(self._outside_place(place))
            is_clean = found is None or (place.pool == "fixed" and not found.is_used)
            assert is_clean or found.place in self.stale, f"{place} is free, and there is {found}"

    def _note_lost(self) -> None:
        bound = self.oracle.in_state("bound")
        rows = {row.pk: row for row in Claim.objects.filter(pk__in=[wish.id for wish in bound])}
        lost_members = set(Member.objects.exclude(lost_at=None).values_list("pk", flat=True))
        moved = [
            wish
            for wish in bound
            if rows[wish.id].state == "bound"
            and rows[wish.id].generation != self.generations[wish.id]
        ]
        for wish in sorted(moved, key=lambda wish: rows[wish.id].generation):
            held = self._held(wish)
            kept = [a for a, b in zip(wish.held, held, strict=True) if a == b]
            left = set(wish.held) - set(held)
            assert {place.member for place in left} <= lost_members, "only lost ports move"
            assert not {place.member for place in held} & lost_members
            self._check_alike(wish, held)
            assert kept, "a claim that has lost all of its ports is lost"
            self.oracle.bind(wish, held)
            self._note_generation(wish, rows[wish.id].generation)
        for wish in bound:
            row = rows[wish.id]
            if row.state != "bound":
                assert row.outcome == "lost", f"claim {wish.id} is {row.outcome}"
                members = {place.member for place in wish.held}
                assert members & lost_members, f"claim {wish.id} is lost without reason"
                self.draining |= {p for p in wish.held if p.member not in lost_members}
                self.oracle.end(wish, "lost")

    def _check_alike(self, wish: Wish, held: list[Place]) -> None:
        for place, part in zip(held, self.oracle.parts_of(wish), strict=True):
            is_pair = self.oracle.is_pair(part.kind)
            lanes = ("tcp", "udp") if is_pair else (self.oracle.lane_of(part.kind, place.pool),)
            assert place.lane in lanes and place.pool in part.pools

    def _check_offered(self, name: str) -> None:
        """After a look, a member offers the lowest numbers for which the listeners of others leave
        room.
        """
        if name == "fixed":
            return
        for member in self._members():
            if member.pool.name != name or member.state == "creating" or member.lost_at is not None:
                continue
            foreign = {
                (each.lane, each.number)
                for each in self.outside.listeners()
                if each.balancer == member.external_id and not self._is_of(each, name)
            }
            rows = Slot.objects.filter(member=member).exclude(state="retired")
            places = {(row.lane, row.number): row.state for row in rows}
            used = {place for place, state in places.items() if state != "idle"}
            left = QUOTA[name] - len(used) - len(foreign - used)
            expected = set(used)
            first, last = SPANS[name]
            for number in range(first, last + 1):
                for lane in self.outside.lanes:
                    place = (lane, number)
                    if left > 0 and place not in foreign | used:
                        expected.add(place)
                        left -= 1
            if foreign:
                assert set(places) == expected, f"{member.name}: {sorted(foreign)}"
            assert {tuple(each) for each in member.foreign_listeners} == foreign

    def _is_of(self, listener: SeenListener, name: str) -> bool:
        return listener.is_ours and SPANS[name][0] <= listener.number <= SPANS[name][1]
