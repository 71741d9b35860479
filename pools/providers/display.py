"""Texts and form fields of a provider. The provider's class declares them for the form of a pool,
the dialog "Add members" and the panel of a member.
"""

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ProviderTexts:
    """Sentences of a provider; the defaults are for a provider that declares none."""

    # Form of a new pool, after the kind: what members are. Empty: only the kind is shown.
    choice: str = ""
    # Dialog "Add members": what adding does outside of Berth.
    adding: str = "The provider of the pool creates them outside, where it creates members."
    # Dialog "Add members": when added members take claims.
    takes_claims: str = "They take claims once they are ready."
    # Panel of a member under creation for which the provider gives no reason.
    creating: str = "It is being created."


@dataclass(frozen=True, slots=True)
class OptionField:
    """An option under `provider:` in the form of a pool. `read_options` receives it as text."""

    path: str  # under `provider:`, like template.image
    label: str
    help: str = ""  # empty: the description of the declared option


@dataclass(frozen=True, slots=True)
class OptionForm:
    """A section of the form of a pool. Options without a field keep their values."""

    title: str
    fields: Sequence[OptionField]
    text: str = ""  # below the title
