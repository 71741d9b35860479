"""Events in words. Pure: an event and the names of what it speaks of in, a line for people out."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

from claims.display import claim_class
from project.kernel.events.log import EventRow

CONTROLLERS = frozenset(
    {"allocate", "finalize", "watch", "relay", "scale", "system", "worker", "cron"}
)
AGENT = "agent:"  # what the actor of an agent begins with
PROBLEMS = frozenset(
    {"lost", "failed", "offline", "unacknowledged", "silent", "expired", "error", "retired"}
)


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
    """What ids are called; what is not there is called by its number."""

    pools: Mapping[int, str] = field(default_factory=dict)
    members: Mapping[int, tuple[str, int]] = field(default_factory=dict)  # name and pool
    slots: Mapping[int, SlotPlace] = field(default_factory=dict)
    owners: Mapping[int, str] = field(default_factory=dict)  # of claims


@dataclass(frozen=True, slots=True)
class EventLine:
    row: EventRow
    css: str  # the glyph
    parts: tuple[TextPart, ...]
    before: tuple[str, str] | None  # class and word
    after: tuple[str, str] | None
    is_person: bool
    count: int = 1  # slots of one hand-over stand in one line

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
        """Who, where that says something: the one who asked for a claim also releases it."""
        is_told = (
            self.is_person
            and self.row.verb not in ("sign_in", "sign_out")
            and (self.row.claim_id is None or self.row.verb in OVERRIDES)
        )
        return self.row.actor if is_told else ""


CLAIM_WORDS = {
    "bind": "bound to",
    "release": "released",
    "cancel": "cancelled",
    "expire": "expired",
    "expired": "expired",
    "lose": "lost",
    "lost": "lost",
    "unacknowledged": "not acknowledged in time",
    "silent": "ended, its holder was silent",
    "disown": "its pool is gone",
    "acknowledge": "acknowledged",
    "finish": "finished",
    "requeue": "back in line",
    "retry": "tried again",
    "prioritise": "prioritised",
    "promote": "next for its workspace",
    "block": "blocked",
    "unblock": "back in line",
    "reserve": "waits for a decision in",
    "approve": "approved",
    "reject": "rejected",
    "park": "waits for a decision without a slot",
    "move": "moved to",
    "leave": "left",
    "shrink": "gave back",
    "resize": "resized",
    "force_release": "released by force",
    "put_out": "put out of",
    "grow": "took",
    "start": "started on",
    "interrupt": "was interrupted on",
    "plan": "has a plan",
    "applied": "applied",
    "failed": "failed",
    "approval": "approved",
    "unapprove": "lacks an approval that counts, and waits for a decision again",
    "extend": "waits longer",
    "expire_soon": "expires soon",
    "reserve_again": "has a slot again in",
    "plan_again": "plans again",
    "apply_lost": "lost its apply",
    "settle": "lost its apply, which is settled",
    "state_rescued": "left a Terraform state that only its agent has, on",
    "state_kept": "has a rescued Terraform state, kept sealed",
    "state_lost": "has lost its rescued Terraform state",
    "state_download": "had its rescued Terraform state downloaded",
    "state_discard": "had its rescued Terraform state discarded",
    "log_limit": "prints more than is kept",
    "stale_report": "reported too late, which changes nothing",
    "refused_agent": "was reported on by an agent that was refused",
}
SLOT_WORDS = {
    "clean": "clean again",
    "retire": "withdrawn",
    "offer": "offered again",
}
MEMBER_WORDS = {
    "add": "added",
    "edit": "edited",
    "cordon": "cordoned",
    "uncordon": "takes claims again",
    "remove": "leaves when it is empty",
    "keep": "stays after all",
    "drain": "drains",
    "force_drain": "is drained by force",
    "undrain": "takes claims again, its drain is taken back",
    "drained": "is drained and stays closed",
    "offline": "is offline",
    "online": "is back",
    "ready": "is ready",
    "lose": "is lost",
    "delete": "is being removed",
    "gone": "has gone",
    "sync_fails": "can’t be made as it should be",
    "create": "added",
    "retire": "withdraws free slots",
    "restart": "is started again",
    "down": "does not run",
    "give_up": "is not started again by itself",
    "rebuild": "is made anew",
    "issue_token": "gets a token",
    "order_token": "is to get another token",
}
POOL_WORDS = {
    "create": "created",
    "configure": "configured",
    "activate": "is active",
    "pause": "paused",
    "resume": "resumed",
    "delete": "is being deleted",
    "gone": "has gone",
    "close": "closes",
    "provider_fails": "has a provider that fails",
    "provider_works": "has a provider that works again",
    "confirm_place": "is where its provider looks now",
    "scale": "is scaled",
    "pin": "is pinned",
    "unpin": "follows its policy again",
    "pause_scaling": "is left alone by the scaler",
    "resume_scaling": "is scaled again",
    "freeze": "is frozen",
    "thaw": "is frozen no more",
    "unfreeze": "has its freeze lifted, once",
    "lift_ahead": "has a freeze to come lifted, once",
    "refreeze": "has a lifted freeze again",
    "roll": "renews outdated members",
    "pause_roll": "has its roll paused",
    "resume_roll": "has its roll resumed",
    "stop_roll": "has its roll stopped",
}
OTHER_WORDS = {
    "grant": "role granted",
    "ungrant": "role taken back",
    "token_create": "token made",
    "create_token": "token made",
    "token_revoke": "token revoked",
    "revoke_token": "token revoked",
    "user_change": "user changed",
    "change_user": "user changed",
    "sign_in": "signed in",
    "sign_out": "signed out",
    "untrusted_proxy": "unknown proxy",
    "lock": "workspace locked",
    "unlock": "workspace unlocked",
    "share": "workspace shared with another pool",
    "unshare": "workspace no longer shared with another pool",
    "set_secret": "secret set",
    "delete_secret": "secret deleted",
}
OVERRIDES = frozenset(
    {
        "cancel",
        "prioritise",
        "force_release",
        "approve",
        "approval",
        "reject",
        "extend",
        "plan_again",
        "settle",
        "park",
        "move",
        "requeue",
        "state_download",
        "state_discard",
    }
)
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
GLYPHS = {
    "create": "creating",
    "add": "creating",
    "cordon": "cordoned",
    "uncordon": "ready",
    "remove": "draining",
    "keep": "ready",
    "drain": "draining",
    "force_drain": "draining",
    "undrain": "ready",
    "drained": "cordoned",
    "put_out": "lost",
    "offline": "unhealthy",
    "lose": "lost",
    "online": "ready",
    "restart": "creating",
    "down": "unhealthy",
    "give_up": "lost",
    "sync_fails": "unhealthy",
    "provider_fails": "unhealthy",
    "provider_works": "ready",
    "pause": "paused",
    "resume": "active",
    "delete": "deleting",
    "gone": "deleting",
    "bind": "bound",
    "release": "done",
    "clean": "idle",
    "prioritise": "waiting",
    "promote": "waiting",
    "block": "waiting",
    "unblock": "waiting",
    "sign_out": "ready",
    "sign_in": "ready",
    "force_release": "lost",
    "start": "running",
    "interrupt": "cancelled",
    "plan": "done",
    "approve": "applying",
    "approval": "apply_pending",
    "unapprove": "apply_pending",
    "extend": "apply_pending",
    "expire_soon": "expired",
    "apply_lost": "lost",
    "applied": "done",
    "settle": "done",
    "state_rescued": "lost",
    "state_kept": "done",
    "state_lost": "lost",
    "state_download": "ready",
    "state_discard": "done",
    "log_limit": "ready",
    "stale_report": "outdated",
    "scale": "ready",
    "pin": "ready",
    "unpin": "ready",
    "pause_scaling": "paused",
    "resume_scaling": "active",
    "freeze": "frozen",
    "thaw": "active",
    "unfreeze": "active",
    "lift_ahead": "active",
    "refreeze": "frozen",
    "configure": "ready",
    "roll": "outdated",
    "pause_roll": "paused",
    "resume_roll": "active",
    "stop_roll": "failed",
    "refused_agent": "failed",
}


def phrase(row: EventRow, names: DisplayNames, count: int = 1) -> EventLine:
    parts = _claim(row, names, count) if row.claim_id else _other(row, names)
    return EventLine(
        row=row,
        css=_glyph(row),
        parts=tuple(parts),
        before=_state(row.before) if row.before != row.after else None,
        after=_state(row.after) if row.before != row.after else None,
        is_person=is_person(row.actor),
        count=count,
    )


def is_person(actor: str) -> bool:
    return actor.partition("/")[0] not in CONTROLLERS and not actor.startswith(AGENT)


def group(rows: Sequence[EventRow]) -> list[tuple[EventRow, int]]:
    """The slots of one hand-over: one line, the first of them and how many. Newest first, as
    they come.
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
            found[-1] = (replace(row), found[-1][1] + 1)
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


def _claim(row: EventRow, names: DisplayNames, count: int) -> list[TextPart]:
    number = row.claim_id
    parts = [TextPart(str(number), f"/claims/{number}/", is_strong=True)]
    if owner := names.owners.get(number or 0):
        parts.append(TextPart(f" {owner}"))
    place = where(row.slot_id, row.member_id, names)
    if row.verb == "create":
        verb = (
            "bound to"
            if row.after == "bound"
            else "waits"
            if row.after == "waiting"
            else "is blocked"
        )
    elif row.slot_id and row.verb in SLOT_WORDS:
        return [*([place] if place else []), TextPart(f" {SLOT_WORDS[row.verb]}, after "), *parts]
    elif (
        row.verb in ("release", "requeue")
        and row.after not in ("idle", "draining", "retired")
        and row.after
    ):
        verb = row.after if row.after != "ended" else "ended"
    else:
        verb = CLAIM_WORDS.get(row.verb, row.verb.replace("_", " "))
    if row.verb == "prioritise" and isinstance(row.data, dict) and "priority" in row.data:
        return [*parts, TextPart(f" has priority {row.data['priority']}")]
    data: dict[str, Any] = row.data if isinstance(row.data, dict) else {}
    if row.verb == "plan":
        return [*parts, TextPart(f" has a plan: {summary_words(data)}")]
    if row.verb == "approval":
        return [*parts, TextPart(f" approved, {data.get('given', 1)} of {data.get('needed', 1)}")]
    if place is None:
        pool = names.pools.get(row.pool_id or 0)
        return [
            *parts,
            TextPart(f" {verb}"),
            *(
                [TextPart(" in "), TextPart(pool, f"/pools/{pool}/")]
                if pool and verb == "waits"
                else []
            ),
        ]
    joint = " " if verb.endswith((" to", " in", " on", " of", "left", "took")) else ", "
    more = [TextPart(f" and {count - 1} more")] if count > 1 else []
    tail = [TextPart(" drains")] if row.after == "draining" else []
    return [*parts, TextPart(f" {verb}{joint}"), place, *more, *tail]


def summary_words(told: Mapping[str, Any]) -> str:
    """+2 ~3 -0, a replacement as one."""
    n = {
        name: value if isinstance(value := told.get(name), int) else 0
        for name in ("add", "change", "destroy", "replace")
    }
    return f"+{n['add']} ~{n['change']} -{n['destroy']}" + (
        f" -/+{n['replace']}" if n["replace"] else ""
    )


def _other(row: EventRow, names: DisplayNames) -> list[TextPart]:
    if row.member_id:
        member = names.members.get(row.member_id)
        name, href = (
            (member[0], member_href(member, names)) if member else (f"member {row.member_id}", "")
        )
        place = where(row.slot_id, row.member_id, names) if row.slot_id else None
        verb = (SLOT_WORDS if row.slot_id else MEMBER_WORDS).get(
            row.verb, row.verb.replace("_", " ")
        )
        return [place or TextPart(name, href, is_strong=True), TextPart(f" {verb}")]
    data: dict[str, Any] = row.data if isinstance(row.data, dict) else {}
    subject = (
        data.get("user")
        or data.get("group")
        or data.get("workspace")
        or data.get("secret")
        or data.get("peer")
        or ""
    )
    if row.verb in ("sign_in", "sign_out"):
        return [TextPart(row.actor, is_strong=True), TextPart(f" {OTHER_WORDS[row.verb]}")]
    if row.verb in OTHER_WORDS:
        parts = [TextPart(OTHER_WORDS[row.verb])]
        parts += [TextPart(": "), TextPart(str(subject), is_strong=True)] if subject else []
        parts += [TextPart(f" {word}") for word in (data.get("token"), data.get("role")) if word]
    elif row.verb == "scale" and row.before == row.after:
        parts = [TextPart(f"stays at {row.before}")]
    else:
        parts = [TextPart(POOL_WORDS.get(row.verb, row.verb.replace("_", " ")))]
    pool = names.pools.get(row.pool_id or 0)
    if row.verb in OTHER_WORDS:
        return [*parts, *([TextPart(" in "), TextPart(pool, f"/pools/{pool}/")] if pool else [])]
    return [
        *([TextPart(pool, f"/pools/{pool}/", is_strong=True), TextPart(" ")] if pool else []),
        *parts,
    ]


def _glyph(row: EventRow) -> str:
    if row.verb == "create" and row.claim_id:
        return "bound" if row.after == "bound" else "waiting"
    if row.claim_id and row.verb not in GLYPHS:
        return (
            claim_class("ended", outcome=row.verb)
            if row.verb in PROBLEMS
            else STATE_CLASS.get(row.after, row.after or "ready")
        )
    return GLYPHS.get(row.verb) or STATE_CLASS.get(row.after, row.after or "ready")


def _state(word: str) -> tuple[str, str] | None:
    if not word:
        return None
    return STATE_CLASS.get(word, word), word
