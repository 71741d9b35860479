"""Turn an event and the names of its objects into a sentence. Pure functions."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from project.kernel.events.log import EventRow
from project.kernel.events.verbs import EventVerb, Subject, find_verb

CONTROLLERS = frozenset(
    {"allocate", "finalize", "watch", "relay", "scale", "system", "worker", "cron"}
)
MOST_PLACES = 2  # addresses in the sentence of a move
AGENT = "agent:"  # prefix of the actor of an agent
# Subjects of events that name neither a claim nor a member.
STANDALONE: tuple[Subject, ...] = ("session", "access", "workspace", "secret", "installation")


@dataclass(frozen=True, slots=True)
class TextPart:
    """A piece of a sentence: plain, strong, or a link."""

    text: str
    href: str = ""
    is_strong: bool = False


@dataclass(frozen=True, slots=True)
class SlotPlace:
    member_id: int
    lane: str
    number: int


@dataclass(frozen=True, slots=True)
class DisplayNames:
    """The names of objects by id. A missing object is shown by its id."""

    pools: Mapping[int, str] = field(default_factory=dict)
    members: Mapping[int, tuple[str, int]] = field(default_factory=dict)  # name and pool
    slots: Mapping[int, SlotPlace] = field(default_factory=dict)
    owners: Mapping[int, str] = field(default_factory=dict)  # of claims


@dataclass(frozen=True, slots=True)
class EventLine:
    row: EventRow
    verb: EventVerb
    css: str  # the glyph
    parts: tuple[TextPart, ...]
    before: tuple[str, str] | None  # class and word
    after: tuple[str, str] | None
    is_person: bool
    count: int = 1  # slots of one event, shown as one line

    @property
    def text(self) -> str:
        return "".join(part.text for part in self.parts)

    @property
    def at(self) -> datetime:
        return self.row.at

    @property
    def key(self) -> str:
        return f"e{self.row.id}"

    @property
    def by(self) -> str:
        """The user, if the line should name them: a user who releases their own claim is not
        named.
        """
        is_told = (
            self.is_person
            and self.verb.subject != "session"
            and (self.row.claim_id is None or self.verb.is_override)
        )
        return self.row.actor if is_told else ""


STATE_CLASS = {
    "blocked": "waiting",
    "parked": "apply_pending",
    "held": "bound",
    "retired": "lost",
    "leaving": "draining",
    "gone": "deleting",
    "paused": "paused",
    "ended": "done",
}


STATE_WORD = {"parked": "awaiting approval"}


def phrase(row: EventRow, names: DisplayNames, count: int = 1) -> EventLine:
    verb = verb_of(row)
    parts = _claim(row, verb, names, count) if row.claim_id else _other(row, verb, names)
    return EventLine(
        row=row,
        verb=verb,
        css=_glyph(row, verb),
        parts=tuple(parts),
        before=_state(row.before) if row.before != row.after else None,
        after=_state(row.after) if row.before != row.after else None,
        is_person=is_person(row.actor),
        count=count,
    )


def verb_of(row: EventRow) -> EventVerb:
    """The registered verb, by what the event names."""
    subjects: list[Subject] = []
    if isinstance(row.data, dict) and "operation" in row.data:
        subjects.append("operation")
    if row.slot_id:
        subjects.append("slot")
    if row.claim_id:
        subjects.append("claim")
    elif row.member_id:
        subjects.append("member")
    else:
        subjects += [*STANDALONE, "pool"]
    return find_verb(row.verb, subjects)


def is_person(actor: str) -> bool:
    return actor.partition("/")[0] not in CONTROLLERS and not actor.startswith(AGENT)


def group(rows: Sequence[EventRow]) -> list[tuple[EventRow, int]]:
    """Merge the events of one claim's slots that one transaction wrote: the first slot and their
    number. `rows` are newest first.
    """
    found: list[tuple[EventRow, int]] = []
    for row in rows:
        last = found[-1][0] if found else None
        if (
            last
            and row.claim_id
            and row.slot_id
            and (last.tx, last.verb, last.claim_id) == (row.tx, row.verb, row.claim_id)
        ):
            found[-1] = (row, found[-1][1] + 1)
        else:
            found.append((row, 1))
    return found


def where(slot_id: int | None, member_id: int | None, names: DisplayNames) -> TextPart | None:
    place = names.slots.get(slot_id or 0)
    member = names.members.get(place.member_id if place else member_id or 0)
    if member is None:
        return None
    text = f"{member[0]} · {place.lane} {place.number}" if place else member[0]
    return TextPart(text, member_href(member, names))


def member_href(member: tuple[str, int], names: DisplayNames) -> str:
    pool = names.pools.get(member[1])
    return f"/pools/{pool}/?member={member[0]}" if pool else ""


def _claim(row: EventRow, verb: EventVerb, names: DisplayNames, count: int) -> list[TextPart]:
    number = row.claim_id
    parts = [TextPart(str(number), f"/claims/{number}/", is_strong=True)]
    if owner := names.owners.get(number or 0):
        parts.append(TextPart(f" {owner}"))
    place = where(row.slot_id, row.member_id, names)
    text = verb.text
    if row.verb == "create":
        text = {"bound": "bound to", "waiting": "waits"}.get(row.after, "is blocked")
    elif verb.subject == "slot":
        return [*([place] if place else []), TextPart(f" {text}, after "), *parts]
    if row.verb == "prioritise" and isinstance(row.data, dict) and "priority" in row.data:
        return [*parts, TextPart(f" has priority {row.data['priority']}")]
    data: dict[str, object] = row.data if isinstance(row.data, dict) else {}
    if row.verb == "plan":
        return [*parts, TextPart(f" finished its plan: {summary_words(data)}")]
    if row.verb == "observe" and "number" in data:
        listener = f"{data.get('lane')} {data['number']}"
        of = [TextPart(" of "), place] if place else []
        return [*parts, TextPart(f" has listener {listener}"), *of, TextPart(f" {data['word']}")]
    if row.verb == "readdress" and data.get("from"):
        return [*parts, TextPart(f" moved from {_places(data, 'from')} to {_places(data, 'to')}")]
    if row.verb == "approval":
        return [*parts, TextPart(f" approved, {data.get('given', 1)} of {data.get('needed', 1)}")]
    if place is None:
        pool = names.pools.get(row.pool_id or 0)
        return [
            *parts,
            TextPart(f" {text}"),
            *(
                [TextPart(" in "), TextPart(pool, f"/pools/{pool}/")]
                if pool and text == "waits"
                else []
            ),
        ]
    joint = " " if text.endswith((" to", " in", " on", " of", " from", "left", "took")) else ", "
    more = [TextPart(f" and {count - 1} more")] if count > 1 else []
    tail = [TextPart(" drains")] if row.after == "draining" else []
    return [*parts, TextPart(f" {text}{joint}"), place, *more, *tail]


def _places(data: Mapping[str, object], name: str) -> str:
    """Such as "lb-0:30001 and 3 more"."""
    given = data.get(name)
    places = [str(each) for each in given] if isinstance(given, list) else []
    more = f" and {len(places) - MOST_PLACES} more" if len(places) > MOST_PLACES else ""
    return f"{', '.join(places[:MOST_PLACES])}{more}"


def summary_words(summary: Mapping[str, object]) -> str:
    """Such as "+2 ~3 -0 -/+1", where the last number counts replacements."""
    n = {
        name: value if isinstance(value := summary.get(name), int) else 0
        for name in ("add", "change", "destroy", "replace")
    }
    return f"+{n['add']} ~{n['change']} -{n['destroy']}" + (
        f" -/+{n['replace']}" if n["replace"] else ""
    )


def _other(row: EventRow, verb: EventVerb, names: DisplayNames) -> list[TextPart]:
    if row.member_id:
        member = names.members.get(row.member_id)
        name, href = (
            (member[0], member_href(member, names)) if member else (f"member {row.member_id}", "")
        )
        place = where(row.slot_id, row.member_id, names) if row.slot_id else None
        return [place or TextPart(name, href, is_strong=True), TextPart(f" {verb.text}")]
    if verb.subject == "session":
        return [TextPart(row.actor, is_strong=True), TextPart(f" {verb.text}")]
    pool = names.pools.get(row.pool_id or 0)
    if verb.subject in STANDALONE:
        data: dict[str, object] = row.data if isinstance(row.data, dict) else {}
        named = ("user", "group", "workspace", "secret", "peer")
        subject = next(filter(None, (data.get(name) for name in named)), "")
        return [
            TextPart(verb.text),
            *([TextPart(": "), TextPart(str(subject), is_strong=True)] if subject else []),
            *(TextPart(f" {word}") for word in (data.get("token"), data.get("role")) if word),
            *([TextPart(" in "), TextPart(pool, f"/pools/{pool}/")] if pool else []),
        ]
    is_unchanged = row.verb == "scale" and row.before == row.after
    return [
        *([TextPart(pool, f"/pools/{pool}/", is_strong=True), TextPart(" ")] if pool else []),
        TextPart(f"stays at {row.before}" if is_unchanged else verb.text),
    ]


def _glyph(row: EventRow, verb: EventVerb) -> str:
    if row.verb == "create" and row.claim_id:
        return "bound" if row.after == "bound" else "waiting"
    return verb.css or STATE_CLASS.get(row.after, row.after or "ready")


def _state(word: str) -> tuple[str, str] | None:
    if not word:
        return None
    return STATE_CLASS.get(word, word), STATE_WORD.get(word, word)
