"""What a provider is: the part that makes the world outside equal to our rows, and says what it
sees there.

A provider is a class named in settings.BERTH_PROVIDERS. It gets plain snapshots, never rows or
connections; every call happens outside transactions and may come twice or late. Errors are the
types of project.kernel.outbox.operations: they decide when to try again. Whatever a provider
promises is written as tests in tests/conformance; a provider is done when it passes them.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Hashable, Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any, ClassVar

from django.conf import settings
from django.utils.module_loading import import_string

from pools.config.parsing import Faults, read_mapping
from pools.config.roll_spec import fingerprint
from pools.config.spec import PoolSpec, turns_agents_off
from pools.providers.display import OptionForm, ProviderTexts
from project.kernel.errors import FieldError
from project.kernel.outbox.budgets import CallBudget
from project.kernel.outbox.operations import PermanentError


@dataclass(frozen=True, slots=True)
class SlotSnapshot:
    id: int
    lane: str
    number: int
    state: str  # idle, held, reserved, draining, retired
    claim_id: int | None = None
    last_claim_id: int | None = None  # whom it drains for
    generation: int = 0
    is_overdue: bool = False  # it drains past its deadline: whoever is still there is to be put out


@dataclass(frozen=True, slots=True)
class MemberSnapshot:
    id: int
    name: str
    state: str  # creating, ready, offline, deleting
    incarnation: int = 1
    external_id: str = ""
    is_owned: bool = False  # we created it, so we may delete it; what is not ours stays
    labels: Mapping[str, str] = field(default_factory=dict)
    spec: Mapping[str, Any] = field(default_factory=dict)
    ports: tuple[int, int] | None = None
    slots: tuple[SlotSnapshot, ...] = ()
    outside: str = ""  # what it was last said to wait for
    # Of this incarnation, for a provider that asked for it: the only time it is told.
    token: str = field(default="", repr=False)
    # It is time for another one; the one it has opens until that is in use.
    is_token_due: bool = False


@dataclass(frozen=True, slots=True)
class PoolSnapshot:
    id: int
    name: str
    provider: str
    # `provider:` of its configuration, but the kind.
    options: Mapping[str, Any] = field(default_factory=dict)
    members: tuple[MemberSnapshot, ...] = ()
    installation: str = ""  # whose it is, where several of us make things in one place
    place: str = ""  # where its members are, as the last look found it; empty: not known yet
    # People who may start tasks in it, for a provider that runs them on this machine.
    claimants: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class SeenSlot:
    """An outside object in the place of a slot, for example the listener of a port."""

    lane: str
    number: int
    # For people and later calls: the id of the listener, its health.
    attributes: Mapping[str, object] = field(default_factory=dict)
    is_foreign: bool = False  # the object is not Berth's; Berth leaves it alone


@dataclass(frozen=True, slots=True)
class MemberReport:
    """The result of a sync. A draining slot that is not in `clean` is still in use; Berth calls
    `sync` again, also after the deadline of the slot.
    """

    clean: frozenset[int] = frozenset()  # ids of draining slots that are confirmed empty
    # The member does not exist outside: for one that is `deleting` this is what was wanted.
    is_gone: bool = False
    is_ready: bool = False  # it exists and works
    external_id: str = ""  # what it is called outside, once that is known
    # All outside objects in the places of slots; None: the provider does not see slots.
    slots: tuple[SeenSlot, ...] | None = None
    down: str = ""  # it is known not to run: why. Not gone: it can be started again
    is_planned: bool = False  # it was ended on purpose: that is no sign of trouble
    # Down, and whoever is started next knows nothing of it: what it was at is lost.
    is_lost: bool = False
    why: str = ""  # what it waits for outside, for people
    # Seconds until it is worth another look, while nothing is confirmed; None: soon.
    again: float | None = None


@dataclass(frozen=True, slots=True)
class Seen:
    """One thing outside that belongs to a member."""

    member_id: int
    is_ready: bool = True
    external_id: str = ""
    why: str = ""  # why it is not ready, or what is unusual about it
    is_down: bool = False  # and it is known that nothing of it runs
    is_planned: bool = False  # it was ended on purpose: that is no sign of trouble
    # Down, and whoever is started next knows nothing of it: what it was at is lost.
    is_lost: bool = False
    is_ending: bool = False  # it is being removed: what runs there may end, no claim comes
    # All outside objects in the places of its slots; None: the provider does not see slots.
    slots: tuple[SeenSlot, ...] | None = None


@dataclass(frozen=True, slots=True)
class Observation:
    """A full look: a member of the snapshot that is not among them is gone. A provider that
    cannot see all raises instead.
    """

    seen: tuple[Seen, ...] = ()
    # Where it looked, to be remembered: a name of a place may lead elsewhere tomorrow.
    place: str = ""
    # Ids of members that the snapshot does not know, and of which something is there.
    strays: frozenset[int] = frozenset()


Tell = Callable[[int | None], None]  # of a pool; None: of all that are followed together


class Follower(ABC):
    """Hears of changes outside, in a thread of its own. Only ever a hint: whoever is told looks
    for himself.
    """

    @abstractmethod
    def start(self) -> None: ...

    @abstractmethod
    def stop(self) -> None:
        """Soon, and for good."""


class Provider(ABC):
    kind: ClassVar[str]
    # Of its operations; empty: nothing to do outside, a slot is free as soon as it is let go.
    queue: ClassVar[str] = ""
    # Members exist outside because we make them, so we may delete them.
    is_owner: ClassVar[bool] = False
    option_fields: ClassVar[tuple[str, ...]] = ()  # known fields under `provider:`
    # Of them those that a member is made from. They may change while members are there, who are
    # outdated then and renewed once idle.
    rolled: ClassVar[tuple[str, ...]] = ()
    # Options that an admin of the pool alone may change, like `template.grace`. The kind
    # and every other option decide what code runs, or where: they need `configure` in all
    # pools (pools.lifecycle.provider_rights).
    free_options: ClassVar[tuple[str, ...]] = ()
    # Members run agents, which do tasks, sign in with a token of the member, and make it ready by
    # their first heartbeat. A provider that can do without lists `agent` in `option_fields`: the
    # members of a pool with `agent: false` run none.
    has_agents: ClassVar[bool] = False
    runs_here: ClassVar[bool] = False  # tasks run on Berth's own machine
    # A new token reaches an agent that runs: `needs_token` says yes to one that is ready and due.
    rotates: ClassVar[bool] = False
    # Seconds between two full looks; less where a look costs nothing.
    look_every: ClassVar[float] = 30.0
    # For the pages: what members are, what adding a member does, which options the form asks for.
    texts: ClassVar[ProviderTexts] = ProviderTexts()
    form: ClassVar[OptionForm | None] = None

    @classmethod
    def describe_creation(cls, why: str) -> str:
        """What a member waits for that is being created. `why`: the reason in the last report of
        this provider; empty: none was given.
        """
        return f"Not here yet: {why}" if why else cls.texts.creating

    @classmethod
    def place_of(cls, options: Mapping[str, Any]) -> str:
        """Who answers for this pool over a network: if nobody does there, pools elsewhere are
        not held up. Empty: nobody is asked.
        """
        return ""

    @classmethod
    def call_budget(cls, options: Mapping[str, Any]) -> CallBudget | None:
        """The bucket from which each `sync` of this pool takes one call; None: no limit. All
        workers share the bucket; an operation waits until it has refilled.
        """
        return None

    def needs_token(self, pool: PoolSnapshot, member: MemberSnapshot) -> bool:
        """Asked before `sync`: whether it is to find a new token of the member's incarnation in
        the snapshot.
        """
        return False

    @classmethod
    def read_options(
        cls, options: Mapping[str, Any], where: str, faults: Faults
    ) -> Mapping[str, Any]:
        """Validate what stands under `provider:`; answer it in canonical form, as JSON. Pure."""
        return dict(read_mapping(options, where, ("kind", *cls.option_fields), faults))

    @classmethod
    def stop_limit(cls, options: Mapping[str, Any]) -> tuple[str, float | None]:
        """After how many seconds a member that is told to end is killed, and the option that
        says so. None: never.
        """
        return "", None

    def check(self, pool: PoolSnapshot) -> list[FieldError]:
        """Asked before a pool is made or changed, outside transactions: what its configuration
        would certainly meet outside, each fault at its field, like `provider.template.image`. Who
        does not answer says nothing about the configuration."""
        return []

    @abstractmethod
    def sync(self, pool: PoolSnapshot, member: MemberSnapshot) -> MemberReport:
        """Make the outside of this member equal to the snapshot and say what is
        confirmed. Idempotent.

        What should not be there and is not there is success. What fails is raised, never swallowed:
        the slot stays draining.
        """

    def remove_strays(self, pool: PoolSnapshot, member_ids: Collection[int]) -> None:  # noqa: B027
        """What is there of members that are gone, by the rows' word: made late by somebody who
        did not know. Told by `look`.
        """

    @classmethod
    def follow_key(cls, options: Mapping[str, Any]) -> Hashable | None:
        """Pools with the same key are followed together. None: nothing outside tells us
        of changes.
        """
        return None

    def follow(self, pool: PoolSnapshot, tell: "Tell") -> "Follower":
        """Made, not yet begun. It tells what pool is worth a look now, or None for all
        of its key.
        """
        raise NotImplementedError

    @abstractmethod
    def look(self, pool: PoolSnapshot) -> Observation:
        """Everything of this pool that exists outside. All or an error: half a look would
        lose claims.
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
    """Kinds that new pools and new members may have: those of BERTH_ALLOWED_PROVIDERS, or all
    known ones.
    """
    return sorted(settings.BERTH_ALLOWED_PROVIDERS or known_providers())


def explain_not_allowed(kind: str) -> FieldError | None:
    """Why this installation makes no new members of this kind, and the way out; None: the kind
    is allowed.
    """
    allowed = list_allowed()
    if kind in allowed:
        return None
    way_out = (
        f"Use one of {', '.join(allowed)}, or have whoever runs Berth add {kind} to "
        "BERTH_ALLOWED_PROVIDERS."
    )
    return FieldError(
        "provider", f"The provider {kind} may not be used in this installation.", way_out
    )


def provider_class(kind: str) -> type[Provider]:
    provider = known_providers().get(kind)
    if provider is None:
        raise PermanentError(
            f"The provider {kind} is not known here. Add its class to BERTH_PROVIDERS, then retry."
        )
    return provider


def provider_of(kind: str) -> Provider:
    return provider_class(kind)()


@cache
def _load_policies(names: tuple[str, ...]) -> Mapping[str, Any]:
    return {policy.kind: policy for policy in map(import_string, names)}


def own_policies() -> Mapping[str, Any]:
    """Scaling policies of one's own, by kind. See pools.scaling.policies."""
    return _load_policies(tuple(getattr(settings, "BERTH_SCALING_POLICIES", ())))


@dataclass(frozen=True, slots=True)
class OptionReader:
    """What pools.config.spec gets to know of a provider: how its options are read, and whether
    its members are agents.
    """

    provider: type[Provider]

    def __call__(self, options: Mapping[str, Any], where: str, faults: Faults) -> Mapping[str, Any]:
        return self.provider.read_options(options, where, faults)

    @property
    def has_agents(self) -> bool:
        return self.provider.has_agents

    @property
    def is_owner(self) -> bool:
        return self.provider.is_owner

    def stop_limit(self, options: Mapping[str, Any]) -> tuple[str, float | None]:
        return self.provider.stop_limit(options)

    @property
    def policies(self) -> Mapping[str, Any]:
        """Of scaling, beside those that are built in: how their options are read."""
        return {kind: policy.read_options for kind, policy in own_policies().items()}


def option_readers() -> Mapping[str, OptionReader]:
    """For pools.config.spec, which knows no provider."""
    return {kind: OptionReader(provider) for kind, provider in known_providers().items()}


def digest_of(spec: PoolSpec) -> str:
    """Of what a member is made from; empty where we do not make them."""
    provider = known_providers().get(spec.provider)
    if provider is None or not provider.is_owner:
        return ""
    return fingerprint(spec.provider, spec.options, provider.rolled, spec.member_labels)


def has_agents(spec: PoolSpec) -> bool:
    """Whether the members of a pool run agents. False also for a provider that this process does
    not know.
    """
    provider = known_providers().get(spec.provider)
    return provider is not None and provider.has_agents and not turns_agents_off(spec.options)


def texts_of(kind: str) -> ProviderTexts:
    """The default texts also for a provider that this process does not know."""
    provider = known_providers().get(kind)
    return ProviderTexts() if provider is None else provider.texts


def kinds_with(is_meant: Callable[[type[Provider]], bool]) -> list[str]:
    return [kind for kind, provider in known_providers().items() if is_meant(provider)]
