"""The registry of event verbs: text, glyph and role of each verb.

The same verb may mean two things for a claim and for a member (`lose`), so an entry belongs to a
subject and a verb. Each app registers its verbs in its `verbs.py`; the kernel's own entries are
below. `tests/suite/test_event_verbs.py` fails on a written verb without an entry, and on an entry
of a verb that no code writes.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

# A line about a claim, slot, member, pool or operation begins with its name, followed by the text.
# The line of a session begins with the actor, other lines with the text.
Subject = Literal[
    "claim", "slot", "member", "pool", "operation", "session", "access", "workspace", "secret",
    "installation",
]  # fmt: skip
# Written by early versions only; their rows name users and tokens.
FORMER_PRIVATE = frozenset({"token_create", "token_revoke", "user_change"})
Flag = Literal["is_problem", "is_private", "changes_access", "is_override", "is_routine"]


@dataclass(frozen=True, slots=True)
class EventVerb:
    subject: Subject
    name: str
    text: str
    css: str = ""  # class of the glyph; empty: the class of the state after the event
    is_problem: bool = False  # listed under "Errors"
    is_private: bool = False  # only administrators and its actor read it
    changes_access: bool = False  # open sockets check again whether they may stay
    is_override: bool = False  # a person stepped in: the claim's line names the actor
    is_routine: bool = False  # left out of the overview and of a pool's latest events


registered: dict[tuple[str, str], EventVerb] = {}


def register(subject: Subject, name: str, text: str, css: str = "", **flags: bool) -> None:
    if (subject, name) in registered:
        raise ValueError(f"The event verb {name} of a {subject} is registered twice.")
    registered[subject, name] = EventVerb(subject, name, text, css, **flags)


def find_verb(name: str, subjects: Sequence[Subject]) -> EventVerb:
    """The entry of the first subject that has the verb. A verb of old events may have no entry:
    then its name is its text.
    """
    keys = [(subject, name) for subject in subjects]
    found = next((registered[key] for key in keys if key in registered), None)
    return found or EventVerb(subjects[-1], name, name.replace("_", " "))


def verbs_with(flag: Flag) -> frozenset[str]:
    return frozenset(verb.name for verb in registered.values() if getattr(verb, flag))


def private_verbs() -> frozenset[str]:
    """Only administrators and its actor read such an event."""
    return verbs_with("is_private") | FORMER_PRIVATE


register("operation", "give_up", "has an operation that failed for good", "lost", is_problem=True)
register("operation", "retry", "has a failed operation tried again", "ready")
register("operation", "see_error", "has a failed operation marked as seen", "ready")
register("session", "sign_in", "signed in", "ready", is_private=True)
register("session", "sign_out", "signed out", "ready", is_private=True, changes_access=True)
register("access", "change_user", "user changed", "ready", is_private=True, changes_access=True)
register("installation", "untrusted_proxy", "unknown proxy", "ready", is_private=True)
register("installation", "renumber", "log renumbered", "ready")
register("claim", "bench", "measured")
