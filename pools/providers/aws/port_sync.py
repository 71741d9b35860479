"""Make the listeners, target groups and targets of one load balancer equal to its rows.

A listener has a target group of its own, created before it and deleted after it, so that every
listener of Berth is found through a group, whose name and tags say whose it is. All steps may be
repeated: a call that fails, or that succeeds without an answer, is made up by the next sync.

Deletions come first, because they make room below the quotas. The targets come last: reading them
takes a call for each group. An exhausted call budget ends a sync at any call, so each step is
complete in itself: the next sync goes on behind it and repeats no write.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace

from pools.config.layout import SHARED
from pools.providers.aws.account import OF_PORTS, Account
from pools.providers.aws.errors import NotTried, ServerFault, code_of, concerns_one_port
from pools.providers.aws.inventory import (
    NetworkBalancer,
    PortGroup,
    PortListener,
    SeenTarget,
    list_listeners,
    mark_ours,
    read_group,
    read_listener,
    see_slot,
)
from pools.providers.aws.loose_groups import GroupLister
from pools.providers.aws.names import GroupKey, member_in, owner_of
from pools.providers.aws.options import MOST_LISTENERS, AwsOptions
from pools.providers.aws.plan import WantedPort, plan_ports
from pools.providers.aws.port_calls import (
    delete_group,
    delete_listener,
    forward_to,
    write_certificate,
    write_tags,
)
from pools.providers.aws.port_targets import PortTargets
from pools.providers.base import (
    MemberReport,
    MemberSnapshot,
    PoolSnapshot,
    SeenSlot,
)
from pools.providers.pacing import PartlySynced
from pools.providers.server_faults import ServerFaults
from project.kernel.outbox.operations import (
    ConflictError,
    Misconfigured,
    PermanentError,
    Postponed,
    ProviderError,
    QuotaExceeded,
)

SOON = 5.0  # seconds until the next sync while ports drain
SETTLING = 10.0  # seconds until the next sync while targets are checked for the first time
MENDING = 60.0  # seconds until the next sync while a person must correct a port
TOGETHER = 10  # ports that are created together


class PortSync:
    """One sync of one load balancer; each sync makes a new object."""

    def __init__(
        self,
        account: Account,
        pool: PoolSnapshot,
        member: MemberSnapshot,
        balancer: NetworkBalancer,
        options: AwsOptions,
    ) -> None:
        self.account, self.pool, self.member = account, pool, member
        self.balancer, self.options = balancer, options
        self.owner = owner_of(pool, member)
        self.lister = GroupLister(account, self.owner, balancer.arn)
        self.plan = plan_ports(pool, member.slots, options)
        self.draining = {slot.number: slot for slot in member.slots if slot.state == "draining"}
        self.listeners: dict[int, PortListener] = {}  # all of the load balancer
        self.groups: dict[str, PortGroup] = {}  # of this member
        self.new_groups: set[str] = set()  # that this sync created, so they had no targets
        self.problems: dict[int, str] = dict(self.plan.problems)
        self.untried: set[int] = set()  # ports for which a call was not made
        self.targets = PortTargets(account, self.plan, self.problems, self.untried, self._guard)
        self.failures: list[ProviderError] = []
        self.full: QuotaExceeded | None = None  # no more listeners fit
        self.faults = account.faults = ServerFaults(pool.id, member.id)

    def run(self) -> MemberReport:
        """Raises PartlySynced if the call budget ends it, and ServerFault in an outage."""
        self._read()
        try:
            self._remove_listeners()
            self._remove_groups()
            self._create_missing()
            self._align_listeners()
            self._align_targets()
            self._remove_groups()  # those that listeners no longer use
        except Postponed as postponed:
            self._end()
            raise PartlySynced(postponed.seconds, self._make_report(again=SOON)) from postponed
        self._end()
        return self._report()

    # -- read ----------------------------------------------------------------------------------

    def _read(self) -> None:
        found = list_listeners(self.account, self.balancer.arn)
        tags = self.account.read_tags(each.arn for each in found)
        for each in self.faults.order(found, lambda each: each.number):
            owner = member_in(tags[each.arn], self.pool)
            self.listeners[each.number] = mark_ours(each, owner, self.member.id)
        # Only the whole list can confirm that a port is clean.
        self.groups = self.lister.list_ours(is_whole=bool(self.draining))

    def _end(self) -> None:
        """Raises ServerFault in an outage. A call that failed may have made a group, so after a
        server error the next sync lists the region.
        """
        if self.faults.first is None:
            self.lister.keep(self.groups, {each.group for each in self.listeners.values()})
        elif self.faults.is_outage(OF_PORTS):
            raise self.faults.first

    @contextmanager
    def _guard(self, number: int) -> Iterator[None]:
        """Errors that concern one port become its problem: the sync goes on with the others."""
        try:
            yield
        except NotTried:
            self.untried.add(number)
        except ProviderError as error:
            if isinstance(error, ServerFault):
                self.faults.record(error.operation, number, error)
            elif not concerns_one_port(error):
                raise
            self.problems[number] = str(error)
            # A person must correct a certificate or a target, which a retry does not do.
            is_lasting = isinstance(error, Misconfigured | PermanentError)
            if not is_lasting or number in self.draining:
                self.failures.append(error)
            if code_of(error) == "TooManyListeners" and isinstance(error, QuotaExceeded):
                self.full = error

    # -- listeners -----------------------------------------------------------------------------

    def _remove_listeners(self) -> None:
        """Delete our listeners that no row wants."""
        for number, listener in list(self.listeners.items()):
            is_wanted = number in self.plan.wanted or number in self.plan.kept
            if not listener.is_ours or is_wanted:
                continue
            with self._guard(number):
                delete_listener(self.account, listener.arn)
                del self.listeners[number]

    def _create_missing(self) -> None:
        missing = [
            want for number, want in self.plan.wanted.items() if number not in self.listeners
        ]
        for want in missing[max(0, MOST_LISTENERS - len(self.listeners)) :]:
            with self._guard(want.number):
                raise QuotaExceeded(
                    f"The load balancer has {len(self.listeners)} listeners of at most "
                    f"{MOST_LISTENERS}, and port {want.number} needs one more. Remove listeners "
                    "that are not Berth's, or add a load balancer."
                )
        missing = self.faults.order(
            (want for want in missing if want.number not in self.problems),
            lambda want: want.number,
        )
        for first in range(0, len(missing), TOGETHER):
            self._create_ports(missing[first : first + TOGETHER])
            # Those before them: their checks have had some time.
            self._read_early(missing[max(0, first - TOGETHER) : first])

    def _create_ports(self, wants: Sequence[WantedPort]) -> None:
        """A few ports together, because their tags are read in one call."""
        groups = self._make_groups(wants) if self.full is None else {}
        made: list[PortListener] = []
        postponed: Postponed | None = None
        try:
            for want in wants:
                if self.full is not None:
                    self.problems.setdefault(want.number, str(self.full))
                elif want.number in groups:
                    with self._guard(want.number):
                        made.append(self._create_listener(want, groups[want.number]))
        except Postponed as error:
            postponed = error  # the report names the listeners that exist by now
        # Success proves no ownership: AWS returns an existing listener with equal settings.
        tags = self.account.read_tags(each.arn for each in made)
        for each in made:
            owner = member_in(tags[each.arn], self.pool)
            self.listeners[each.number] = mark_ours(each, owner, self.member.id)
            if each.group in self.new_groups:  # others may have a target of an ended claim
                self.targets.add_new(each.number)
        if postponed is not None:
            raise postponed

    def _make_groups(self, wants: Sequence[WantedPort]) -> dict[int, PortGroup]:
        """The target groups of these ports, by number; created where they are missing. A group
        that AWS returns counts only with our tags.
        """
        found, returned = dict[int, PortGroup](), dict[int, PortGroup]()
        try:
            for want in wants:
                if (there := self._find_group(want)) is not None:
                    found[want.number] = there
                    continue
                with self._guard(want.number):
                    returned[want.number] = self._create_group(want)
            tags = self.account.read_tags(group.arn for group in returned.values())
        except Postponed:  # the next sync knows them, and reads their tags
            self.groups |= {group.arn: group for group in returned.values()}
            raise
        for number, group in returned.items():
            with self._guard(number):
                if not self.owner.owns(tags[group.arn]):
                    raise ConflictError(
                        f"The target group {group.name} exists and has not Berth's tags. Delete "
                        "it, or set another provider.name_prefix."
                    )
                self.groups[group.arn] = found[number] = group
        return found

    def _find_group(self, want: WantedPort) -> PortGroup | None:
        suffixes = want.suffixes(self.owner)
        fitting = (each for each in self.groups.values() if each.name.endswith(suffixes))
        return next(fitting, None)

    def _create_group(self, want: WantedPort) -> PortGroup:
        family = want.families[0]
        name = GroupKey(want.number, want.protocol, family).name(self.owner, self.options.prefix)
        try:
            answer = self.account.call(
                "CreateTargetGroup",
                Name=name,
                Protocol=want.group_protocol,
                Port=want.number,
                VpcId=self.balancer.vpc,
                TargetType="ip",
                IpAddressType="ipv6" if family == 6 else "ipv4",
                Tags=write_tags({**self.options.tags, **self.owner.tags}),
                **self.options.health.settings,
            )
        except ConflictError as error:
            if code_of(error) != "DuplicateTargetGroupName":
                raise
            # Of an earlier attempt, with the health check of that time; it is aligned later.
            answer = self.account.call("DescribeTargetGroups", Names=[name])
            group = read_group(answer["TargetGroups"][0])
            assert group is not None  # Berth wrote the name
            return group
        group = read_group(answer["TargetGroups"][0])
        assert group is not None
        self.new_groups.add(group.arn)
        return group

    def _create_listener(self, want: WantedPort, group: PortGroup) -> PortListener:
        if self.options.delay is not None:
            # Before the listener exists: an attempt that fails here is repeated with this call.
            value = {
                "Key": "deregistration_delay.timeout_seconds",
                "Value": str(self.options.delay),
            }
            self.account.call(
                "ModifyTargetGroupAttributes", TargetGroupArn=group.arn, Attributes=[value]
            )
        if want.target is not None:
            self.targets.register(group.arn, want.target)
        answer = self.account.call(
            "CreateListener",
            LoadBalancerArn=self.balancer.arn,
            Port=want.number,
            Protocol=want.listener_protocol,
            DefaultActions=forward_to(group.arn),
            Tags=write_tags({**self.options.tags, **self.owner.tags}),
            **write_certificate(want),
        )
        return read_listener(answer["Listeners"][0])

    def _align_listeners(self) -> None:
        """Correct the protocol, the certificate, the target group and its health check."""
        for want in self.faults.order(self.plan.wanted.values(), lambda want: want.number):
            number = want.number
            listener = self.listeners.get(number)
            if listener is None or not listener.is_ours:
                continue
            with self._guard(number):
                group = self.groups.get(listener.group)
                if group is None or not group.name.endswith(want.suffixes(self.owner)):
                    group = self._make_groups([want]).get(number)
                    if group is None:
                        continue
                self._align_listener(want, listener, group)
                if self.options.health.differs_from(group.health):
                    settings = self.options.health.settings
                    self.account.call("ModifyTargetGroup", TargetGroupArn=group.arn, **settings)

    def _align_listener(self, want: WantedPort, listener: PortListener, group: PortGroup) -> None:
        changes: dict[str, object] = {}
        if listener.protocol != want.listener_protocol:
            changes["Protocol"] = want.listener_protocol
        if listener.group != group.arn:
            changes["DefaultActions"] = forward_to(group.arn)
        if listener.certificate != want.certificate:
            changes |= write_certificate(want)
        if changes:
            self.account.call("ModifyListener", ListenerArn=listener.arn, **changes)
            self.listeners[listener.number] = replace(
                listener,
                group=group.arn,
                protocol=want.listener_protocol,
                certificate=want.certificate,
            )

    # -- targets -------------------------------------------------------------------------------

    def _read_early(self, wants: Sequence[WantedPort]) -> None:
        there = (self.listeners.get(want.number) for want in wants)
        self.targets.read_early([each for each in there if each and each.group in self.new_groups])

    def _align_targets(self) -> None:
        ours = (each for each in self.listeners.values() if each.is_ours)
        self.targets.align([each for each in ours if each.group in self.groups])

    # -- groups --------------------------------------------------------------------------------

    def _remove_groups(self) -> None:
        """Delete our groups that no listener uses and no row wants."""
        used = {each.group for each in self.listeners.values()}
        for arn, group in self.faults.order(self.groups.items(), lambda item: item[1].number):
            want = self.plan.wanted.get(group.number)
            # A group without a listener, which could not be created, serves the next attempt.
            is_next = want is not None and group.name.endswith(want.suffixes(self.owner))
            is_waiting = is_next and group.number not in self.listeners
            if arn in used or is_waiting or group.number in self.plan.kept:
                continue
            with self._guard(group.number):
                delete_group(self.account, arn)
                del self.groups[arn]

    # -- report --------------------------------------------------------------------------------

    def _report(self) -> MemberReport:
        """What is confirmed, with the first failure: the other ports do not wait for its port."""
        report = self._make_report()
        rest = {slot.number for slot in self.draining.values() if slot.id not in report.clean}
        if rest - self.problems.keys():
            return replace(report, again=SOON)
        if any(each.state == "initial" for each in self.targets.list_wanted()):
            return replace(report, again=SETTLING)
        if self.problems and not self.failures:
            return replace(report, again=MENDING)
        return report

    def _make_report(self, again: float | None = None) -> MemberReport:
        return MemberReport(
            clean=frozenset(
                slot.id for slot in self.draining.values() if self._is_clean(slot.number)
            ),
            is_ready=self.member.state != "creating" or not self.failures,
            external_id=self.balancer.arn,
            addresses=self.balancer.addresses,
            slots=self._see_slots(),
            why=str(self.failures[0]) if self.failures else self.balancer.why,
            again=again,
            failure=self.failures[0] if self.failures else None,
        )

    def _is_clean(self, number: int) -> bool:
        """Whether no object of ours is in use for the port."""
        if number in self.problems or number in self.untried:
            return False
        listener = self.listeners.get(number)
        is_served = listener is not None and listener.is_ours
        if self.pool.is_precreated:
            return not is_served or self.targets.get(number) == ()
        has_group = any(each.number == number for each in self.groups.values())
        return not is_served and not has_group

    def _known_targets(self, number: int) -> tuple[SeenTarget, ...] | None:
        """The targets of a group; None: the sync ended before it read them."""
        found = self.targets.get(number)
        is_without = self.listeners[number].group not in self.groups
        return () if found is None and is_without else found

    def _see_slots(self) -> tuple[SeenSlot, ...]:
        seen = [
            see_slot(listener, self._known_targets(number), self.problems.get(number, ""))
            for number, listener in sorted(self.listeners.items())
        ]
        seen += [
            SeenSlot(SHARED, number, {"problem": problem})
            for number, problem in sorted(self.problems.items())
            if number not in self.listeners
        ]
        return tuple(seen)
