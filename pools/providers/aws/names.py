"""Names, tags and ARNs. Pure.

Tags prove ownership: an object is Berth's only with the tags of its installation, pool and member.
Names are deterministic, so that a repeated create finds the object of an attempt that lost its
answer. A target group is known by the end of its name, which the prefix does not change.
"""

import base64
import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass

from pools.providers.base import MemberSnapshot, PoolSnapshot

INSTALLATION_TAG, POOL_TAG, MEMBER_TAG = "berth-installation", "berth-pool", "berth-member"
TAG_PREFIX = "berth-"
UNNAMED = "berth"  # an installation without a name
DEFAULT_PREFIX = "berth"
LONGEST_PREFIX = 9
LONGEST_NAME = 32  # of a load balancer and of a target group
HASH = 10
TOKENS: Mapping[str, str] = {"tcp": "tcp", "udp": "udp", "tcp_udp": "both", "tcp_ssl": "tls"}
GROUP_NAME = re.compile(r"[A-Za-z0-9-]+-([0-9]{1,5})-(?:tcp|udp|both|tls)6?-[a-z2-7]{10}")
BALANCER_ARN = re.compile(
    r"arn:(aws[a-z-]*):elasticloadbalancing:([a-z0-9-]+):([0-9]{12}):loadbalancer/(.+)"
)
CERTIFICATE_ARN = re.compile(
    r"arn:(aws[a-z-]*):(?:acm:([a-z0-9-]+):([0-9]{12}):certificate|iam::([0-9]{12}):"
    r"server-certificate)/[A-Za-z0-9/_+=,.@-]+"
)


@dataclass(frozen=True, slots=True)
class ObjectOwner:
    """The member that an object outside belongs to."""

    installation: str
    pool: str
    member: int

    @property
    def tags(self) -> dict[str, str]:
        return {
            INSTALLATION_TAG: self.installation,
            POOL_TAG: self.pool,
            MEMBER_TAG: str(self.member),
        }

    def owns(self, tags: Mapping[str, str]) -> bool:
        return all(tags.get(name) == value for name, value in self.tags.items())


def installation_of(pool: PoolSnapshot) -> str:
    return pool.installation or UNNAMED


def owner_of(pool: PoolSnapshot, member: MemberSnapshot) -> ObjectOwner:
    return ObjectOwner(installation_of(pool), pool.name, member.id)


def member_in(tags: Mapping[str, str], pool: PoolSnapshot) -> int | None:
    """The id of the member that the tags name; None: the object is not this pool's."""
    number = tags.get(MEMBER_TAG, "")
    is_number = number.isascii() and number.isdigit() and len(number) < 19
    if not is_number or not ObjectOwner(installation_of(pool), pool.name, int(number)).owns(tags):
        return None
    return int(number)


def balancer_name(owner: ObjectOwner, prefix: str, words: str) -> str:
    """`words`: for people, shortened."""
    tail = _digest(owner.installation, str(owner.member))
    middle = re.sub(r"[^A-Za-z0-9]+", "-", words).strip("-")
    room = LONGEST_NAME - len(prefix) - len(tail) - 2
    return "-".join(part for part in (prefix, middle[:room].strip("-"), tail) if part)


@dataclass(frozen=True, slots=True)
class GroupKey:
    """What tells the target groups of a member apart."""

    number: int
    protocol: str  # of the claim: tcp, udp, tcp_udp or tcp_ssl
    family: int  # 4 or 6

    def suffix(self, owner: ObjectOwner) -> str:
        six = "6" if self.family == 6 else ""
        tail = _digest(owner.installation, str(owner.member), str(self.number), self.protocol, six)
        return f"-{self.number}-{TOKENS[self.protocol]}{six}-{tail}"

    def name(self, owner: ObjectOwner, prefix: str) -> str:
        return f"{prefix}{self.suffix(owner)}"


def number_in(name: str) -> int | None:
    """The port in the name of a target group; None: Berth wrote no such name."""
    match = GROUP_NAME.fullmatch(name)
    return None if match is None else int(match[1])


def is_named_for(name: str, owner: ObjectOwner) -> bool:
    """Whether the name is one that Berth gives to target groups of this member. The tags of such a
    group decide; the name saves reading the tags of all others.
    """
    number = number_in(name)
    return number is not None and name.endswith(
        tuple(
            GroupKey(number, protocol, family).suffix(owner)
            for protocol in TOKENS
            for family in (4, 6)
        )
    )


def _digest(*parts: str) -> str:
    found = hashlib.sha256("/".join(parts).encode()).digest()
    return base64.b32encode(found).decode().lower()[:HASH]


@dataclass(frozen=True, slots=True)
class ArnFault:
    message: str
    way_out: str


def find_balancer_fault(arn: str, region: str, account: str = "") -> ArnFault | None:
    """Why an ARN names no network load balancer of this region, and account if it is given."""
    match = BALANCER_ARN.fullmatch(arn)
    example = f"arn:aws:elasticloadbalancing:{region}:123456789012:loadbalancer/net/name/id"
    if match is None:
        return ArnFault(
            f"{arn} is not the ARN of a load balancer.", f"Write its ARN, like {example}."
        )
    if match[2] != region:
        return ArnFault(
            f"{arn} is in the region {match[2]}, and the pool is in {region}.",
            f"Name a load balancer in {region}, or create a pool for {match[2]}.",
        )
    if account and match[3] != account:
        return ArnFault(
            f"{arn} is in the account {match[3]}, and Berth's credentials are of {account}.",
            f"Name a load balancer of {account}, or give Berth credentials of {match[3]}.",
        )
    kind, slash, _ = match[4].partition("/")
    if slash and kind == "net":
        return None
    what = {"app": "an application", "gwy": "a gateway"}.get(kind if slash else "", "a classic")
    return ArnFault(
        f"{arn} is {what} load balancer; only network load balancers have TCP and UDP ports.",
        "Name a network load balancer: its ARN contains loadbalancer/net/.",
    )


def find_certificate_fault(arn: str, region: str, account: str = "") -> ArnFault | None:
    """Why listeners in this region cannot use a certificate."""
    match = CERTIFICATE_ARN.fullmatch(arn)
    example = f"arn:aws:acm:{region}:123456789012:certificate/id"
    if match is None:
        return ArnFault(
            f"{arn} is not the ARN of a certificate.", f"Write its ARN, like {example}."
        )
    if match[2] and match[2] != region:
        return ArnFault(
            f"{arn} is in the region {match[2]}, and the load balancers are in {region}.",
            f"Request or import the certificate in {region}.",
        )
    if account and account not in (match[3], match[4]):
        return ArnFault(
            f"{arn} is in another account than {account}.",
            f"Import the certificate into the account {account}.",
        )
    return None
