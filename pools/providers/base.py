"""The interface of providers. A provider makes the outside equal to the rows of a pool's members,
and reports what it sees there.

settings.BERTH_PROVIDERS names the classes. A provider receives snapshots, never rows or
connections. Each call runs outside of transactions and may come twice or late. Errors are types of
project.kernel.outbox.operations, which decide when Berth retries. The conformance suite
(tests/pools/providers/test_conformance.py) states what every provider must do.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Hashable, Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any, ClassVar

from django.conf import settings
from django.utils.module_loading import import_string

from pools.config.fields import Fields
from pools.config.layout import Layout
from pools.config.parsing import Faults
from pools.config.roll_spec import fingerprint
from pools.config.spec import OptionReader, PoolSpec, turns_agents_off
from pools.providers.display import OptionForm, ProviderTexts
from project.kernel.errors import FieldError
from project.kernel.outbox.budgets import CallBudget
from project.kernel.outbox.operations import PermanentError, ProviderError


@dataclass(frozen=True, slots=True)
class PortTarget:
    """Where a listener sends its traffic. In a segment, `port` belongs to the first port."""

    ip: str  # IPv4 or IPv6, without brackets
    port: int

    def __str__(self) -> str:
        return f"[{self.ip}]:{self.port}" if ":" in self.ip else f"{self.ip}:{self.port}"


@dataclass(frozen=True, slots=True)
class PortUse:
    """What the holder of a port wants of its listener."""

    # tcp, udp, tcp_udp (one listener for both, where the pool has one lane), tcp_ssl or quic.
    protocol: str
    target: PortTarget | None = None  # None: the listener exists and has no target
    # Of tcp_ssl and quic: an ARN or an id; the pool's where the claim names none.
    certificate: str = ""
    # The claim has a backend that may not be its target now: a target outside is a difference.
    is_withheld: bool = False


@dataclass(frozen=True, slots=True)
class SlotSnapshot:
    id: int
    lane: str
    number: int
    state: str  # idle, held, reserved, draining, retired
    claim_id: int | None = None
    last_claim_id: int | None = None  # the claim that a draining slot held
    generation: int = 0
    is_overdue: bool = False  # drains past its deadline: the provider must end what still runs
    use: PortUse | None = None  # of a held or reserved port


@dataclass(frozen=True, slots=True)
class MemberSnapshot:
    id: int
    name: str
    state: str  # creating, ready, offline, deleting
    incarnation: int = 1
    external_id: str = ""
    is_owned: bool = False  # Berth created it and may delete it
    labels: Mapping[str, str] = field(default_factory=dict)
    spec: Mapping[str, object] = field(default_factory=dict)
    ports: tuple[int, int] | None = None
    slots: tuple[SlotSnapshot, ...] = ()
    outside: str = ""  # the last `why` of the provider
    # A new token of this incarnation, if `needs_token` asked for one. Only this call contains it.
    token: str = field(default="", repr=False)
    # The token is to be rotated. The present token stays valid until the new one is in use.
    is_token_due: bool = False


@dataclass(frozen=True, slots=True)
class PoolSnapshot:
    id: int
    name: str
    provider: str
    # The fields under `provider:` of the configuration, without the kind.
    options: Mapping[str, Any] = field(default_factory=dict)
    members: tuple[MemberSnapshot, ...] = ()
    installation: str = ""  # tells the objects of several installations in one place apart
    place: str = ""  # where the members are, as the last look reported; empty: not known yet
    # People who may start tasks in the pool, for a provider that runs them on this machine.
    claimants: tuple[str, ...] = ()
    # First and last port of a pool of ports. A listener outside of them is none of this pool's.
    ports: tuple[int, int] | None = None
    segment: int = 1  # ports of one slot, which share a listener
    # Listeners exist before a claim holds their port, and stay after its release: every slot of a
    # member has one, with the protocol of its lane.
    is_precreated: bool = False


@dataclass(frozen=True, slots=True)
class SeenSlot:
    """An outside object in the place of a slot, for example the listener of a port."""

    lane: str
    number: int
    # For people and later calls. Of a listener: `id`; `protocol`; `target`, "ip:port", or none;
    # `health`: healthy, unhealthy, initial, draining, or unchecked without a health check; `end`,
    # the last port of a segment; `problem`, a text, if the listener cannot serve its claim.
    attributes: Mapping[str, object] = field(default_factory=dict)
    is_foreign: bool = False  # the object is not Berth's; Berth leaves it alone


@dataclass(frozen=True, slots=True)
class MemberReport:
    """The result of a sync. A draining slot that is not in `clean` is still in use; Berth calls
    `sync` again, also after the deadline of the slot.
    """

    clean: frozenset[int] = frozenset()  # ids of draining slots that are confirmed empty
    # The member does not exist outside. For a `deleting` member this is the aim.
    is_gone: bool = False
    is_ready: bool = False  # it exists and works
    external_id: str = ""  # its name outside, once known
    addresses: tuple[str, ...] = ()  # host names and IPs under which its ports are reached
    # All outside objects in the places of slots; None: the provider does not see slots.
    slots: tuple[SeenSlot, ...] | None = None
    down: str = ""  # the reason why it is known not to run, though it can be started again
    is_planned: bool = False  # down on purpose: no sign of trouble
    # Down, and the next start cannot resume its work: its tasks are lost.
    is_lost: bool = False
    why: str = ""  # what it waits for outside, for people
    # Seconds until the next call while not all is confirmed; None: soon.
    again: float | None = None
    # Why a part of the work failed. Berth records the report, and repeats the call as after an
    # error that was raised.
    failure: ProviderError | None = None


@dataclass(frozen=True, slots=True)
class Seen:
    """An object outside that belongs to a member."""

    member_id: int
    is_ready: bool = True
    external_id: str = ""
    why: str = ""  # why it is not ready, or what is unusual about it
    is_down: bool = False  # known not to run
    is_planned: bool = False  # down on purpose: no sign of trouble
    # Down, and the next start cannot resume its work: its tasks are lost.
    is_lost: bool = False
    addresses: tuple[str, ...] = ()  # host names and IPs under which its ports are reached
    is_ending: bool = False  # being removed outside: running tasks may end, no new claims
    # All outside objects in the places of its slots; None: the provider does not see slots.
    slots: tuple[SeenSlot, ...] | None = None


@dataclass(frozen=True, slots=True)
class Observation:
    """The result of a full look: a member of the snapshot that is not in `seen` is gone. A provider
    that cannot see all objects raises instead.
    """

    seen: tuple[Seen, ...] = ()
    # Where the provider looked. Berth stores it, because the same options may later lead elsewhere.
    place: str = ""
    # Objects outside of members that are not in the snapshot: their names, by the id of the member.
    strays: Mapping[int, str] = field(default_factory=dict)


Tell = Callable[[int | None], None]  # with the id of a pool; None: all pools of the follower


class Follower(ABC):
    """Receives changes from outside in a thread of its own. A change is only a hint to look."""

    @abstractmethod
    def start(self) -> None: ...

    @abstractmethod
    def stop(self) -> None:
        """End the thread soon."""


class Provider(ABC):
    kind: ClassVar[str]
    # Celery queue of its operations; empty: no operations, a released slot is free at once.
    queue: ClassVar[str] = ""
    # The provider creates the members outside, and may delete them.
    is_owner: ClassVar[bool] = False
    # The `external_id` of a declared member names an object that the user owns. Berth never creates
    # or deletes it, and still removes what it made there for slots.
    serves_named: ClassVar[bool] = False
    option_fields: ClassVar[Fields] = Fields({})  # the fields under `provider:`, without `kind`
    # Options from which a member is created. They may change while members exist: these are then
    # outdated, and renewed once idle.
    rolled: ClassVar[tuple[str, ...]] = ()
    # Options that may change while members exist: a change orders a sync of each member, which
    # applies them to what is there, or only to new objects, as the page of the provider says.
    live_options: ClassVar[tuple[str, ...]] = ()
    # Options that an admin of one pool may change, like `template.grace`. The kind and all other
    # options decide which code runs, or where, and need `configure` in all pools
    # (pools.lifecycle.provider_rights).
    free_options: ClassVar[tuple[str, ...]] = ()
    # Members run agents, which run tasks, sign in with the member's token, and make the member
    # ready by their first heartbeat. With `agent` in `option_fields`, a pool may set
    # `agent: false`, and its members run no agents.
    has_agents: ClassVar[bool] = False
    runs_here: ClassVar[bool] = False  # tasks run on Berth's own machine
    # Members listen on addresses of Berth's own machine, so that the target of a member may be a
    # port of another one.
    listens_here: ClassVar[bool] = False
    # A running agent can receive a new token: `needs_token` returns True for a ready member with
    # a due token.
    rotates: ClassVar[bool] = False
    # Kinds of claims that its members cannot serve though the layout has their lane, each with the
    # reason. Such a claim is refused.
    unserved_kinds: ClassVar[Mapping[str, str]] = {}
    # The option with the certificate of tcp_ssl and quic ports for claims without a certificate.
    certificate_option: ClassVar[str] = ""
    # Seconds between two full looks; lower where a look is cheap.
    look_every: ClassVar[float] = 30.0
    # Texts of the pages, and the options that the form of a pool asks for.
    texts: ClassVar[ProviderTexts] = ProviderTexts()
    form: ClassVar[OptionForm | None] = None

    @classmethod
    def describe_creation(cls, why: str) -> str:
        """What a member that is being created waits for. `why`: the reason in the last report of
        this provider, or empty.
        """
        return f"Not here yet: {why}" if why else cls.texts.creating

    @classmethod
    def shares_address(cls) -> bool:
        """Whether members of all pools of this kind listen on one address: no two of them can offer
        the same port.
        """
        return False

    @classmethod
    def place_of(cls, options: Mapping[str, Any]) -> str:
        """The server that calls for this pool reach over a network: an unreachable server delays
        only pools of the same place. Empty: no server.
        """
        return ""

    @classmethod
    def call_budget(cls, options: Mapping[str, Any]) -> CallBudget | None:
        """The bucket from which each `sync` of this pool takes one call; None: no limit. All
        workers share the bucket; an operation waits until it has refilled.
        """
        return None

    @classmethod
    def list_budgets(cls, options: Mapping[str, Any], place: str) -> Mapping[str, CallBudget]:
        """All buckets from which calls for this pool are taken, by a word for people. `place`: as
        the last look reported, or empty.
        """
        budget = cls.call_budget(options)
        return {} if budget is None else {budget.key: budget}

    def needs_token(self, pool: PoolSnapshot, member: MemberSnapshot) -> bool:
        """True if the next `sync` needs a new token of the member's incarnation in the snapshot."""
        return False

    @classmethod
    def read_options(
        cls, options: Mapping[str, Any], where: str, faults: Faults
    ) -> Mapping[str, Any]:
        """Validate the fields under `provider:`; return them in canonical form, as JSON. Pure."""
        given = {name: value for name, value in options.items() if name != "kind"}
        return cls.option_fields.write_given(cls.option_fields.read(given, where, faults))

    @classmethod  # noqa: B027
    def check_layout(cls, layout: Layout, faults: Faults) -> None:
        """Add a fault for each part of the pool's `slots` that the outside cannot offer, at its
        field, like `slots.segment`. Called whenever a configuration is read. Pure.
        """

    @classmethod
    def stop_limit(cls, options: Mapping[str, Any]) -> tuple[str, float | None]:
        """The option that sets after how many seconds a member that must end is killed, and its
        value. None: never.
        """
        return "", None

    def check(self, pool: PoolSnapshot) -> list[FieldError]:
        """Faults of a configuration that only the outside knows, each at its field, like
        `provider.template.image`. Called outside of transactions before a pool is created or
        changed. An outside that does not answer is no fault.
        """
        return []

    @abstractmethod
    def sync(self, pool: PoolSnapshot, member: MemberSnapshot) -> MemberReport:
        """Make the outside of this member equal to the snapshot, and report what is confirmed.
        Idempotent.

        An object that should not exist and does not exist is a success. Every failure is raised,
        or is the `failure` of a report of all that succeeded, and draining slots stay draining.
        """

    @classmethod
    def name_adopted(cls, pool: str, stray: str, member_id: int) -> str | None:
        """The name of the member that an object of `Observation.strays` can become: the `sync` of a
        new member with this id and name takes the object over. None: it cannot become a member.
        """
        return None

    def remove_strays(self, pool: PoolSnapshot, member_ids: Collection[int]) -> None:  # noqa: B027
        """Remove objects of members that are gone, as `look` reported them in `strays`: a late
        call of `sync` created them.
        """

    @classmethod
    def follow_key(cls, options: Mapping[str, Any]) -> Hashable | None:
        """Pools with equal keys share a follower. None: the outside announces no changes."""
        return None

    def follow(self, pool: PoolSnapshot, tell: "Tell") -> "Follower":
        """A follower that is not started. It calls `tell` with a pool to look at, or with None
        for all pools of its key.
        """
        raise NotImplementedError

    @abstractmethod
    def look(self, pool: PoolSnapshot) -> Observation:
        """All objects of this pool outside. Raises if not all can be seen, because members that
        are missing in the result lose their claims.
        """


@cache
def _load(names: tuple[str, ...]) -> Mapping[str, type[Provider]]:
    found: dict[str, type[Provider]] = {}
    for name in names:
        provider: type[Provider] = import_string(name)
        if provider.kind in found:
            raise ValueError(
                f"two providers are called {provider.kind!r}: {name} and "
                f"{found[provider.kind].__qualname__}"
            )
        found[provider.kind] = provider
    return found


def known_providers() -> Mapping[str, type[Provider]]:
    return _load(tuple(settings.BERTH_PROVIDERS))


def list_allowed() -> list[str]:
    """Kinds that new pools and new members may have: BERTH_ALLOWED_PROVIDERS, or all known
    kinds.
    """
    return sorted(settings.BERTH_ALLOWED_PROVIDERS or known_providers())


def explain_not_allowed(kind: str) -> FieldError | None:
    """The fault if this installation does not allow new members of this kind, or None."""
    allowed = list_allowed()
    if kind in allowed:
        return None
    way_out = (
        f"Use one of {', '.join(allowed)}, or ask the administrator of Berth to add {kind} to "
        "BERTH_ALLOWED_PROVIDERS."
    )
    return FieldError(
        "provider", f"The provider {kind} may not be used in this installation.", way_out
    )


def provider_class(kind: str) -> type[Provider]:
    provider = known_providers().get(kind)
    if provider is None:
        raise PermanentError(
            f"The provider {kind} is unknown. Add its class to BERTH_PROVIDERS, then retry."
        )
    return provider


def provider_of(kind: str) -> Provider:
    return provider_class(kind)()


@cache
def _load_policies(names: tuple[str, ...]) -> Mapping[str, Any]:
    return {policy.kind: policy for policy in map(import_string, names)}


def own_policies() -> Mapping[str, Any]:
    """The scaling policies of the installation, by kind. See pools.scaling.policies."""
    return _load_policies(tuple(getattr(settings, "BERTH_SCALING_POLICIES", ())))


def option_readers() -> Mapping[str, OptionReader]:
    """Option readers by kind, for pools.config.spec, which must not import providers."""
    policies = {kind: policy.read_options for kind, policy in own_policies().items()}
    return {
        kind: OptionReader(
            provider.read_options,
            provider.option_fields.schema,
            provider.has_agents,
            provider.is_owner,
            provider.stop_limit,
            policies,
            provider.check_layout,
        )
        for kind, provider in known_providers().items()
    }


def digest_of(spec: PoolSpec) -> str:
    """Digest of the configuration from which members are created; empty where the provider
    creates no members.
    """
    provider = known_providers().get(spec.provider)
    if provider is None or not provider.is_owner:
        return ""
    return fingerprint(spec.provider, spec.options, provider.rolled, spec.member_labels)


def has_agents(spec: PoolSpec) -> bool:
    """True if the members of a pool run agents. False for an unknown provider."""
    provider = known_providers().get(spec.provider)
    return provider is not None and provider.has_agents and not turns_agents_off(spec.options)


def default_certificate(kind: str, options: Mapping[str, Any]) -> str:
    """The certificate of encrypted ports for claims without a certificate; empty: there is none."""
    provider = known_providers().get(kind)
    name = "" if provider is None else provider.certificate_option
    return str(options.get(name) or "") if name else ""


def texts_of(kind: str) -> ProviderTexts:
    """The texts of a provider; the default texts for an unknown provider."""
    provider = known_providers().get(kind)
    return ProviderTexts() if provider is None else provider.texts


def kinds_with(is_meant: Callable[[type[Provider]], bool]) -> list[str]:
    return [kind for kind, provider in known_providers().items() if is_meant(provider)]
