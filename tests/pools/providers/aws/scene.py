"""A pool of load balancers over a strict ELBv2, and audits of what it left outside."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from pools.providers.aws.names import INSTALLATION_TAG, MEMBER_TAG, POOL_TAG
from pools.providers.aws.provider import AwsProvider
from pools.providers.base import (
    MemberReport,
    MemberSnapshot,
    PoolSnapshot,
    PortTarget,
    PortUse,
    SeenSlot,
    SlotSnapshot,
)
from tests.pools.providers.aws.elbv2_cloud import Cloud
from tests.pools.providers.aws.harness import (
    make_options,
    put_balancer,
    put_foreign_listener,
)

INSTALLATION, POOL = "b-test", "games"
CERTIFICATE = "arn:aws:acm:eu-west-1:123456789012:certificate/one"
OTHER_CERTIFICATE = "arn:aws:acm:eu-west-1:123456789012:certificate/two"


def target_of(text: str) -> PortTarget | None:
    """ "10.0.0.5:80", or empty for none."""
    ip, _, port = text.rpartition(":")
    return PortTarget(ip.strip("[]"), int(port)) if text else None


def make_port(
    number: int,
    state: str = "held",
    protocol: str = "tcp",
    target: str = "10.0.0.10:8080",
    certificate: str = "",
    **more: Any,
) -> SlotSnapshot:
    use = PortUse(protocol, target_of(target), certificate) if state == "held" else None
    return SlotSnapshot(
        **{"id": number, "lane": "port", "number": number, "state": state, "use": use, **more}
    )


@dataclass
class AwsScene:
    cloud: Cloud
    address: str
    options: dict[str, Any] = field(default_factory=dict)
    foreign: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.options = make_options(self.address)
        self.cloud.certificates |= {CERTIFICATE, OTHER_CERTIFICATE}

    # -- snapshots -----------------------------------------------------------------------------

    def pool(self, *members: MemberSnapshot, **changes: Any) -> PoolSnapshot:
        pool = PoolSnapshot(
            id=7,
            name=POOL,
            provider="aws",
            options=self.options,
            members=members,
            installation=INSTALLATION,
            ports=(30000, 32767),
        )
        return replace(pool, **changes)

    def member(self, *slots: SlotSnapshot, number: int = 1, **changes: Any) -> MemberSnapshot:
        member = MemberSnapshot(
            id=number, name=f"lb-{number}", state="ready", is_owned=True, slots=slots
        )
        return replace(member, **changes)

    def make(self, *slots: SlotSnapshot, number: int = 1) -> MemberSnapshot:
        """A member with a load balancer that Berth created, ready."""
        creating = self.member(number=number, state="creating")
        report = self.sync(creating)
        assert report.is_ready
        return self.member(*slots, number=number, external_id=report.external_id)

    def declare(self, *slots: SlotSnapshot, number: int = 1, arn: str = "") -> MemberSnapshot:
        """A member with a load balancer of the user, which has two listeners."""
        if not arn:
            arn = put_balancer(self.cloud, f"users-{number}", team="other")
            first = put_foreign_listener(self.cloud, arn, 443)
            second = put_foreign_listener(self.cloud, arn, 30500)
            groups = {self.cloud.listeners[each].group for each in (first, second)}
            self.foreign |= {arn, first, second, *groups}
        return self.member(*slots, number=number, is_owned=False, external_id=arn)

    # -- calls ---------------------------------------------------------------------------------

    def sync(self, member: MemberSnapshot, **changes: Any) -> MemberReport:
        return AwsProvider().sync(self.pool(member, **changes), member)

    def sweep(self, *members: MemberSnapshot) -> None:
        """A look, and the removal of all that it finds of members that are gone."""
        provider, pool = AwsProvider(), self.pool(*members)
        if strays := provider.look(pool).strays:
            provider.remove_strays(pool, set(strays))

    # -- audits --------------------------------------------------------------------------------

    def is_ours(self, tags: Mapping[str, str]) -> bool:
        return tags.get(INSTALLATION_TAG) == INSTALLATION and tags.get(POOL_TAG) == POOL

    def balancers(self) -> list[str]:
        return [arn for arn, each in self.cloud.balancers.items() if self.is_ours(each.tags)]

    def ports(self) -> dict[int, tuple[str, str, str]]:
        """Protocol, targets and certificate of our listeners, by number."""
        found = {}
        for each in self.cloud.listeners.values():
            if self.is_ours(each.tags):
                group = self.cloud.groups[each.group]
                self.cloud.forget_drained(group)
                places = (
                    f"{ip}:{port}"
                    for (ip, port), target in group.targets.items()
                    if not target.is_draining
                )
                certificate = each.certificates[0] if each.certificates else ""
                found[each.port] = each.protocol, ",".join(sorted(places)), certificate
        return dict(sorted(found.items()))

    def foreign_state(self) -> Any:
        return [
            {arn: each for arn, each in kind.items() if not self.is_ours(each[-1])}
            for kind in self.cloud.outside()
        ]

    def audit(self) -> None:
        """No orphan, no double, no foreign object touched."""
        listeners = [each for each in self.cloud.listeners.values() if self.is_ours(each.tags)]
        groups = [arn for arn, each in self.cloud.groups.items() if self.is_ours(each.tags)]
        used = Counter(each.group for each in listeners)
        assert Counter(groups) == used, "each group has one listener, each listener its group"
        members = Counter(
            each.tags[MEMBER_TAG]
            for each in self.cloud.balancers.values()
            if self.is_ours(each.tags)
        )
        assert all(count == 1 for count in members.values()), members
        assert self.cloud.find_writes_to(self.foreign) == []


def slot_at(report: MemberReport, number: int) -> SeenSlot:
    assert report.slots is not None
    (found,) = [each for each in report.slots if each.number == number]
    return found
