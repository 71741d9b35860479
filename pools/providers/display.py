"""What the pages show of a provider. The class of the provider declares it; the form of a pool, the
dialog "Add members" and the panel of a member read it from there.
"""

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ProviderTexts:
    """The defaults are for a provider that declares none."""

    # What its members are, after the kind in the form of a new pool; empty: the kind alone.
    choice: str = ""
    # What adding a member does outside of Berth.
    adding: str = "The provider of the pool creates them outside, where it creates members."
    # When members that were added take claims.
    takes_claims: str = "They take claims once they are ready."
    # What a member waits for that is being created, as long as the provider gives no reason.
    creating: str = "It is being created."


@dataclass(frozen=True, slots=True)
class OptionField:
    """An option under `provider:` that the form of a pool asks for. `read_options` of the provider
    gets it as text.
    """

    path: str  # under `provider:`, like template.image
    label: str
    help: str = ""


@dataclass(frozen=True, slots=True)
class OptionForm:
    """A section of the form of a pool. Options that it leaves out stay as the pool has them."""

    title: str
    fields: Sequence[OptionField]
    text: str = ""  # below the title
