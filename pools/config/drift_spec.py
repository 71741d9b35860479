"""`drift:` of a pool's configuration: the repairs that Berth carries out by itself. Pure.

Without it, each repair needs a person. Foreign objects are never altered: only their numbers can be
put into quarantine.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from pools.config.fields import Object, option
from pools.config.parsing import Choice

PERSON, REPAIR, QUARANTINE, ADOPT, DELETE = "person", "repair", "quarantine", "adopt", "delete"
TEXTS = {
    PERSON: "person: an operator decides",
    REPAIR: "repair: the listener becomes what the rows say",
    QUARANTINE: "quarantine: no claim gets the slot until a person ends that",
    ADOPT: "adopt: it becomes a member, if the pool has room",
    DELETE: "delete: it is removed",
}


def _choice(*names: str) -> Choice:
    return Choice({name: TEXTS[name] for name in names})


@dataclass(frozen=True, slots=True)
class DriftRules:
    missing: str = option(
        _choice(PERSON, REPAIR),
        PERSON,
        "A slot has no object outside, and a claim holds it or its listener is pre-created.",
    )
    changed: str = option(
        _choice(PERSON, REPAIR),
        PERSON,
        "A listener has another target, protocol or certificate than its claim wants.",
    )
    problem: str = option(
        _choice(PERSON, REPAIR, QUARANTINE),
        PERSON,
        "An object cannot serve its claim. The quarantine waits until this has lasted a minute.",
    )
    orphan: str = option(
        _choice(PERSON, REPAIR), PERSON, "An object of Berth is in a slot that no claim holds."
    )
    foreign: str = option(
        _choice(PERSON, QUARANTINE), PERSON, "A foreign object is in the place of a slot."
    )
    strays: str = option(
        _choice(PERSON, ADOPT, DELETE),
        PERSON,
        "An object with the marks of this pool belongs to no member that Berth has known.",
    )

    @property
    def by_kind(self) -> Mapping[str, str]:
        """The repair of each kind of difference in a slot."""
        return {
            "missing": self.missing,
            "changed": self.changed,
            "problem": self.problem,
            "orphan": self.orphan,
            "foreign": self.foreign,
        }


DEFAULT = DriftRules()
DRIFT = Object(DriftRules)
