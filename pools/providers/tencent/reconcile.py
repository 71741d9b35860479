"""Makes the listeners and targets of one load balancer equal to the rows, in few calls.

The order is: delete, create, remove stale targets, bind targets. Each call stands for itself, and a
repeated pass starts from what the cloud shows, so an interruption at any point leaves no listener
that the next pass does not find. A refusal of one item does not stop the other items.
"""

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import TypeVar

from pools.providers.base import MemberReport, MemberSnapshot, PoolSnapshot, SeenSlot, SlotSnapshot
from pools.providers.server_faults import ServerFaults
from pools.providers.tencent.client import (
    LISTENERS_CREATED,
    LISTENERS_DELETED,
    TARGETS_CHANGED,
    ClbClient,
    CloudTask,
    batched,
    sum_health,
)
from pools.providers.tencent.errors import (
    InternalFault,
    ListenerMissing,
    LoadBalancerMissing,
    NoAnswer,
    PortTaken,
    RequestRejected,
)
from pools.providers.tencent.listeners import (
    Binding,
    Listener,
    ListenerChanges,
    ListenerSpec,
    Place,
    explain_blocker,
    find_blocker,
    plan_listeners,
    see_slots,
    stale_of,
)
from pools.providers.tencent.writes import (
    CloudTaskFailed,
    LoadBalancerWriter,
    StillRunning,
)
from project.kernel.outbox.operations import (
    ConflictError,
    ProviderError,
    QuotaExceeded,
    Throttled,
    Unauthorised,
)

# Errors that would also fail the other items of a call.
STOPPING = (Throttled, Unauthorised, NoAnswer, LoadBalancerMissing)
LISTENER_QUOTA = "TOTAL_LISTENER_QUOTA"
# Seconds until the next call: for a running write, after a failed item, for a lasting problem.
SOON, LATER, MUCH_LATER = 1.0, 5.0, 30.0

T = TypeVar("T")
Change = tuple[Listener, Binding]
Write = Callable[[str, Callable[[], CloudTask]], CloudTask]


class ListenerSync:
    """One pass over one load balancer."""

    plan: ListenerChanges

    def __init__(
        self, client: ClbClient, pool: PoolSnapshot, member: MemberSnapshot, load_balancer: str
    ) -> None:
        self._client, self._pool, self._member, self._id = client, pool, member, load_balancer
        self._writer = LoadBalancerWriter(client, load_balancer)
        self._targets: dict[str, tuple[Binding, ...]] = {}
        self._health: dict[str, str] = {}
        self._created: set[Place] = set()
        self._emptied: set[Place] = set()  # places whose listener or targets this pass removed
        self._errors: list[ProviderError] = []
        self._has_changed = False  # this pass achieved a change
        self._is_uncertain = False  # a write without an answer may still have its effect
        self._was_uncertain = False  # the same of a write of an earlier pass
        self._faults = ServerFaults(pool.id, member.id)
        self._waits = ""  # what the rest of the work waits for

    def run(self) -> None:
        """Raises if all of the work is impossible now."""
        try:
            self._was_uncertain = self._writer.resume()
            self._read()
            self._delete()
            self._create()
            self._bind()
            self._writer.settle()
        except StillRunning as pause:
            self._waits = str(pause)
        if not hasattr(self, "plan"):
            self._read()
        self._read_health()
        # A write that met a server error may have its effect on its own place only.
        is_elsewhere = self._was_uncertain or bool(self._waits) or not self._faults.ports
        self._is_uncertain = is_elsewhere and self._writer.is_uncertain

    @property
    def is_complete(self) -> bool:
        return not (self._waits or self._errors or self.plan.problems)

    @property
    def waits(self) -> str:
        return self._waits

    def report(self) -> MemberReport:
        """The first error is the failure if this pass achieved nothing: the error then decides when
        the next call comes. After some success, a later pass reports it.
        """
        clean = frozenset(
            slot.id
            for slot in self._member.slots
            if slot.state == "draining" and self._is_empty(slot)
        )
        is_vain = bool(self._errors) and not (clean or self._has_changed or self._waits)
        why, again = self._describe_rest()
        return MemberReport(
            clean=clean,
            is_ready=True,
            external_id=self._id,
            slots=self._see(),
            why=why,
            again=None if is_vain else again,
            failure=self._errors[0] if is_vain else None,
        )

    def _describe_rest(self) -> tuple[str, float | None]:
        if self._waits:
            return self._waits, SOON
        if self._errors:
            return str(self._errors[0]), LATER
        if problems := list(self.plan.problems.values()):
            more = f" (and {len(problems) - 1} more)" if len(problems) > 1 else ""
            return f"{problems[0]}{more}", MUCH_LATER
        if self._is_uncertain:
            return "Berth waits until a call without an answer has ended.", LATER
        return "", None

    def _read(self) -> None:
        listeners = self._client.describe_listeners(self._id)
        self.plan = plan_listeners(self._pool, self._member, listeners)
        self._read_targets()

    def _read_targets(self) -> None:
        """Listeners that this pass created have none."""
        known = self._targets.keys()
        ids = [
            listener.id
            for listener in self.plan.own
            if listener.id not in known and listener.place not in self._created
        ]
        self._targets |= self._client.describe_targets(self._id, ids)

    def _read_health(self) -> None:
        checked = [each for each in self.plan.own if each.is_checked and self._targets.get(each.id)]
        if checked:
            seen = self._client.describe_health([self._id]).get(self._id, {})
            self._health = {listener: sum_health(targets) for listener, targets in seen.items()}

    def _delete(self) -> None:
        for some in batched(self._order(self.plan.delete), LISTENERS_DELETED):
            self._split("deletes", some, self._delete_some, self._keep_deletion_visible)

    def _delete_some(self, listeners: Sequence[Listener]) -> None:
        ids = [listener.id for listener in listeners]
        try:
            self._writer.write(
                f"deletes {_count(len(ids), 'listener')}",
                lambda: self._client.delete_listeners(self._id, ids),
            )
        except ListenerMissing:
            # One missing listener fails the whole call.
            there = {each.id for each in self._client.describe_listeners(self._id)}
            left = [listener for listener in listeners if listener.id in there]
            if len(left) == len(listeners):
                raise
            self._emptied |= {each.place for each in listeners if each.id not in there}
            if left:
                self._delete_some(left)
            return
        self._emptied |= {listener.place for listener in listeners}
        self._has_changed = True

    def _keep_deletion_visible(self, listener: Listener, error: ProviderError) -> None:
        self._errors.append(error)
        self.plan.problems[listener.place] = str(error)
        self.plan.create = [each for each in self.plan.create if each.place != listener.place]

    def _create(self) -> None:
        if not self.plan.create:
            return
        self._create_all(self.plan.create, self._writer.begin)
        self._writer.await_probable_end()
        self._read_created()
        if self._list_unseen():
            self._writer.end_open_task()
            self._read_created()
        if unseen := self._list_unseen():  # their tasks have failed
            self._create_all(unseen, self._writer.write)
            self._read_created()

    def _create_all(self, specs: Sequence[ListenerSpec], write: Write) -> None:
        groups: dict[tuple[str, str], list[ListenerSpec]] = {}
        for spec in self._order(sorted(specs, key=lambda each: each.port)):
            groups.setdefault((spec.protocol, spec.certificate), []).append(spec)
        # A segment needs a call of its own.
        size = LISTENERS_CREATED if self._pool.segment == 1 else 1
        for group in groups.values():
            for some in batched(group, size):
                self._split(
                    "creates", some, partial(self._create_some, write), self._refuse_listener
                )

    def _read_created(self) -> None:
        """The ids in the answers have no names, so only the cloud's list tells which is which."""
        problems = self.plan.problems
        self._read()
        self.plan.problems = {**self.plan.problems, **problems}
        self._has_changed |= any(each.place in self._created for each in self.plan.own)

    def _list_unseen(self) -> list[ListenerSpec]:
        """Listeners whose creation was accepted, and that do not show."""
        return [spec for spec in self.plan.create if spec.place in self._created]

    def _create_some(self, write: Write, specs: Sequence[ListenerSpec]) -> None:
        try:
            write(
                f"creates {_count(len(specs), 'listener')}",
                lambda: self._client.create_listeners(self._id, self._parameters(specs)),
            )
        except PortTaken:
            self._create_unblocked(write, specs)
            return
        except QuotaExceeded as error:
            self._create_within_quota(write, specs, error)
            return
        except RequestRejected as error:
            if not specs[0].certificate:
                raise
            for spec in specs:  # they share the certificate
                self.plan.problems[spec.place] = (
                    f"The certificate {spec.certificate} cannot be used: {error}"
                )
            return
        self._created |= {spec.place for spec in specs}

    def _list_created(self) -> list[Listener]:
        """All listeners, also those of a creation that runs."""
        self._writer.end_open_task()
        return self._client.describe_listeners(self._id)

    def _create_unblocked(self, write: Write, specs: Sequence[ListenerSpec]) -> None:
        """A listener of another program appeared since the plan was made."""
        listeners = self._list_created()
        free = []
        for spec in specs:
            if blocker := find_blocker(listeners, spec):
                if blocker.name != spec.name:
                    self.plan.problems[spec.place] = explain_blocker(blocker, spec)
            else:
                free.append(spec)
        if len(free) == len(specs):
            raise PortTaken("Tencent Cloud refuses a port that no listener seems to use.")
        if free:
            self._create_some(write, free)

    def _create_within_quota(
        self, write: Write, specs: Sequence[ListenerSpec], error: QuotaExceeded
    ) -> None:
        quota = self._client.describe_quota().get(LISTENER_QUOTA, 0)
        there = len(self._list_created())
        room = max(0, quota - there)
        if 0 < room < len(specs):
            self._create_some(write, specs[:room])
            specs = specs[room:]
        for spec in specs:
            self.plan.problems[spec.place] = (
                f"{self._id} has {there} of {quota} listeners (quota {LISTENER_QUOTA}): {error}"
            )

    def _parameters(self, specs: Sequence[ListenerSpec]) -> dict[str, object]:
        first = specs[0]
        is_checked = bool(self._pool.options.get("health_check"))
        parameters: dict[str, object] = {
            "Protocol": first.protocol,
            "Ports": [spec.port for spec in specs],
            "ListenerNames": [spec.name for spec in specs],
            "HealthCheck": {"HealthSwitch": int(is_checked)},
        }
        if first.certificate:
            certificate = {"SSLMode": "UNIDIRECTIONAL", "CertId": first.certificate}
            parameters["Certificate"] = certificate
        if first.end > first.port:
            parameters["EndPort"] = first.end
        return parameters

    def _refuse_listener(self, spec: ListenerSpec, error: ProviderError) -> None:
        self.plan.problems[spec.place] = str(error)
        if isinstance(error, CloudTaskFailed | InternalFault):
            self._errors.append(error)

    def _bind(self) -> None:
        stale: list[Change] = []
        missing: list[Change] = []
        for listener, spec in self.plan.keep:
            bound = self._targets.get(listener.id, ())
            stale += [(listener, each) for each in stale_of(bound, spec.target)]
            if spec.target and len(stale_of(bound, spec.target)) == len(bound):
                missing.append((listener, spec.target))
        self._change(stale, "removes", self._client.deregister, self._record_removed)
        # A listener with a stale target would split its traffic.
        stuck = {listener.id for listener, each in stale if each in self._targets[listener.id]}
        ready = [change for change in missing if change[0].id not in stuck]
        self._change(ready, "binds", self._client.register, self._record_bound)

    def _change(
        self,
        changes: Sequence[Change],
        verb: str,
        call: Callable[[str, Sequence[Change]], CloudTask],
        record: Callable[[Change], None],
    ) -> None:
        def change_some(some: Sequence[Change]) -> None:
            task = self._writer.write(
                f"{verb} {_count(len(some), 'target')}", lambda: call(self._id, some)
            )
            for each in some:
                if each[0].id in task.failed:
                    text = f"Tencent Cloud refuses {each[1]}: {task.message or 'no reason given'}"
                    self._refuse_target(each, ConflictError(text))
                else:
                    record(each)
                    self._has_changed = True

        for some in batched(self._order(changes), TARGETS_CHANGED):
            self._split(verb, some, change_some, self._refuse_target)

    def _refuse_target(self, change: Change, error: ProviderError) -> None:
        """The fault of a claim shows on its slot. A draining slot has no claim to show it on."""
        place = change[0].place
        self.plan.problems[place] = str(error)
        if isinstance(error, InternalFault) or place in {
            (slot.lane, slot.number) for slot in self._member.slots if slot.state == "draining"
        }:
            self._errors.append(error)

    def _record_removed(self, change: Change) -> None:
        listener, binding = change
        left = tuple(each for each in self._targets[listener.id] if each != binding)
        self._targets[listener.id] = left
        if not left:
            self._emptied.add(listener.place)

    def _record_bound(self, change: Change) -> None:
        listener, binding = change
        self._targets[listener.id] = (*self._targets.get(listener.id, ()), binding)

    def _order(self, items: Iterable[T]) -> list[T]:
        return self._faults.order(items, _place_of)

    def _split(
        self,
        verb: str,
        items: Sequence[T],
        attempt: Callable[[Sequence[T]], None],
        refuse: Callable[[T, ProviderError], None],
    ) -> None:
        """Try all at once. After a refusal of the call, or a server error, try its halves, so that
        only the items at fault are refused.
        """
        if self._faults.is_in_vain(verb):
            return
        try:
            attempt(items)
        except ProviderError as error:
            if isinstance(error, STOPPING) and not isinstance(error, InternalFault):
                raise
            if len(items) == 1:
                self._refuse(verb, items[0], error, refuse)
                return
            middle = len(items) // 2
            self._split(verb, items[:middle], attempt, refuse)
            self._split(verb, items[middle:], attempt, refuse)
        else:
            self._faults.record_success(verb)

    def _refuse(
        self, verb: str, item: T, error: ProviderError, refuse: Callable[[T, ProviderError], None]
    ) -> None:
        if isinstance(error, InternalFault):
            self._faults.record(verb, _place_of(item), error)
        refuse(item, error)

    def _is_empty(self, slot: SlotSnapshot) -> bool:
        """Whether the cloud has confirmed that a draining slot has no listener, or no target."""
        place = (slot.lane, slot.number)
        if place in self._emptied:
            return True
        if self._waits or self._is_uncertain or place in self._faults.ports:
            return False  # a running write may create the listener, or bind a target
        if place in {each.place for each in self.plan.delete}:
            return False
        own = {each.place: each for each in self.plan.own}
        if place not in own:
            return True
        return self._pool.is_precreated and not self._targets.get(own[place].id)

    def _see(self) -> tuple[SeenSlot, ...]:
        stuck = [each for each in self.plan.delete if each.place not in self._emptied]
        span = self._pool.segment - 1
        return see_slots(
            [*stuck, *self.plan.own],
            self.plan.foreign,
            self._targets,
            self._health,
            places={(slot.lane, slot.number): slot.number + span for slot in self._member.slots},
            problems=self.plan.problems,
        )


def _place_of(item: object) -> Place:
    """The place of an item of a call."""
    if isinstance(item, tuple):
        item = item[0]
    assert isinstance(item, Listener | ListenerSpec)
    return item.place


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"
