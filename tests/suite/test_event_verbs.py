"""The registry of event verbs has an entry for each verb that is written, and no other."""

import re
from functools import cache
from pathlib import Path

import pytest
from django.conf import settings

from project.kernel.events import verbs
from tests.suite.event_writers import Code, Written

SUBJECT_OF = {"claim_id": "claim", "slot_id": "slot", "member_id": "member", "pool_id": "pool"}
STANDALONE = {"session", "access", "workspace", "secret", "installation"}


@cache
def code() -> Code:
    found = Code(Path(settings.BASE_DIR))
    assert len(found.written) > 100
    return found


def subjects_of(event: Written) -> set[str]:
    """What an entry for this event may be about."""
    named = {SUBJECT_OF[column] for column in event.ids}
    sure = event.ids - event.optional - {"pool_id"}
    return named | {"operation"} | (set() if sure else STANDALONE)


def without_entry(written: list[Written]) -> set[tuple[str, str]]:
    registered = {(verb.subject, verb.name) for verb in verbs.registered.values()}
    found = set()
    for event in written:
        main = next((SUBJECT_OF[name] for name in SUBJECT_OF if name in event.ids), "")
        about = {"slot", "claim"} if "slot_id" in event.ids else {main}
        about |= {"operation"} if "outbox" in event.place else set()
        about |= STANDALONE if main in ("", "pool") else set()
        if not any((subject, event.verb) in registered for subject in about):
            found.add((event.verb, event.place))
    return found


def test_every_verb_can_be_read_in_the_code() -> None:
    faults = code().faults
    assert not faults, f"Write the verb as a string where the event is recorded: {faults}"


def test_every_written_verb_has_an_entry() -> None:
    missing = without_entry(code().written)
    assert not missing, f"Register these in the verbs.py of their app: {sorted(missing)}"


def test_every_entry_is_written() -> None:
    written = {(subject, event.verb) for event in code().written for subject in subjects_of(event)}
    unused = {(v.subject, v.name) for v in verbs.registered.values()} - written
    assert not unused, f"Nothing writes these: delete them: {sorted(unused)}"


def test_every_verb_that_a_statement_or_a_link_asks_for_has_an_entry() -> None:
    names = {verb.name for verb in verbs.registered.values()}
    read = code().read()
    assert {"reserve_again", "approve"} <= set(read)  # in a statement, in a template
    assert {verb: place for verb, place in read.items() if verb not in names} == {}


def test_every_glyph_is_a_class_of_the_style_sheet() -> None:
    sheet = (Path(settings.BASE_DIR) / "project/static/berth/berth.css").read_text()
    classes = set(re.findall(r"\.([a-z_]+)\b", sheet))
    assert {verb.css for verb in verbs.registered.values() if verb.css} <= classes


def test_a_verb_fits_its_column() -> None:
    assert max(len(verb.name) for verb in verbs.registered.values()) <= 24


def test_a_verb_is_registered_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(verbs, "registered", {})
    verbs.register("member", "nap", "naps")
    verbs.register("pool", "nap", "naps")
    with pytest.raises(ValueError, match="nap of a member is registered twice"):
        verbs.register("member", "nap", "sleeps")


WRITERS = {
    "claims/lifecycle/release.py": "class Ending: ...\n",
    "project/kernel/events/log.py": "def record(verb, **ids): ...\n",
    "slots/nap.py": """
from project.kernel.events.log import record

SIZES = {"short": "nap_short", "long": "nap_long"}

def nap(size, now):
    record(SIZES[size], member_id=1)
    record("nap_now" if now else "nap_later", member_id=1)
    _tell("nap_told")
    late("nap")

def _tell(verb):
    record(verb, pool_id=1)

def late(verb):
    record(f"late_{verb}"[:24], claim_id=1)

def hidden(size):
    record(size.upper(), member_id=1)
""",
    "slots/nap.sql": """
-- give_back: ends a nap.
INSERT INTO kernel_event (verb, claim_id) SELECT %(verb)s, id FROM c

-- move: two verbs of one statement.
WITH m AS (SELECT 'nap_move' AS verb FROM a UNION ALL SELECT 'nap_leave' AS verb FROM b)
INSERT INTO kernel_event (verb, member_id) SELECT verb, id FROM m
""",
    "slots/statement.py": 'def end(slots_sql):\n    slots_sql.give_back(verb="nap_end")\n',
    "slots/insert.py": "X = \"INSERT INTO kernel_event (verb, slot_id) SELECT 'nap_slot', id\"\n",
}


def test_verbs_are_followed_to_where_they_are_written(tmp_path: Path) -> None:
    for name, text in WRITERS.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    found = Code(tmp_path)
    assert {(event.verb, *sorted(event.ids)) for event in found.written} == {
        ("nap_short", "member_id"),
        ("nap_long", "member_id"),
        ("nap_now", "member_id"),
        ("nap_later", "member_id"),
        ("nap_told", "pool_id"),
        ("late_nap", "claim_id"),
        ("nap_end", "claim_id"),
        ("nap_move", "member_id"),
        ("nap_leave", "member_id"),
        ("nap_slot", "slot_id"),
    }
    assert found.faults == ["slots/nap.py:19: size.upper()"]
    assert {verb for verb, _ in without_entry(found.written)} == {e.verb for e in found.written}
