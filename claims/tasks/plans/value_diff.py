"""The difference of two values as lines."""

import json
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher

SENSITIVE = "(sensitive)"
UNKNOWN = "(known after apply)"
MAX_VALUE_LENGTH = 300  # characters of one value
MAX_LINE_LENGTH = 4 * MAX_VALUE_LENGTH  # a name and two values, with escapes
# Limits of one resource: the time for long, many or similar values grows faster than their size.
MOST_LINES = 400
MOST_CHARACTERS = 60_000  # of all lines
MOST_STEPS = 3_000_000  # of comparing lists and texts; then items are compared by position
DEEPEST = 40
MOST_COMPARED = 200  # items of a list; longer lists are compared by position
ALWAYS_SHOWN = ("id", "name", "tags")  # also without a change
SIGNS = {"+": "add", "-": "del", "~": "chg", " ": ""}
Path = tuple[object, ...]


@dataclass(frozen=True, slots=True)
class DiffLine:
    sign: str
    depth: int
    text: str

    @property
    def css(self) -> str:
        return SIGNS[self.sign]

    @property
    def shown(self) -> str:
        return f"{self.sign}   {'    ' * self.depth}{self.text}".rstrip()


@dataclass(frozen=True, slots=True)
class _Side:
    """A value with its marks: which parts are unknown and which are sensitive."""

    value: object = None
    unknown: object = None
    hidden: object = None

    @property
    def is_there(self) -> bool:
        return self.value is not None or self.unknown is True

    @property
    def is_hidden(self) -> bool:
        return self.hidden is True

    @property
    def is_leaf(self) -> bool:
        return self.is_hidden or self.unknown is True or not isinstance(self.value, dict | list)

    @property
    def shown_text(self) -> str | None:
        """The value if it is a text that may be shown."""
        is_shown = isinstance(self.value, str) and not self.is_hidden and self.unknown is not True
        return str(self.value) if is_shown else None

    def child(self, key: object) -> "_Side":
        return _Side(_at(self.value, key), _at(self.unknown, key), _at(self.hidden, key))

    def keys(self) -> list[object]:
        if isinstance(self.value, list):
            return list(
                range(
                    max(len(self.value), len(self.unknown) if isinstance(self.unknown, list) else 0)
                )
            )
        found = dict.fromkeys(self.value if isinstance(self.value, dict) else ())
        if isinstance(self.unknown, dict):
            found |= dict.fromkeys(key for key, mark in self.unknown.items() if mark)
        return list(found)

    @property
    def text(self) -> str:
        if self.is_hidden:
            return SENSITIVE
        if self.unknown is True:
            return UNKNOWN
        return quote(self.value)


def diff_values(
    before: object,
    after: object,
    *,
    unknown: object = None,
    hidden_before: object = None,
    hidden_after: object = None,
    forces: Iterable[Path] = (),
) -> list[DiffLine]:
    """The attributes of a resource that change, and those that identify it."""
    writer = _Writer(set(forces))
    old, new = _Side(before, None, hidden_before), _Side(after, unknown, hidden_after)
    if old.is_hidden or new.is_hidden:
        return [DiffLine("~", 0, f"everything {SENSITIVE}")]
    writer.members(old, new, 0, ())
    return writer.finish()


class _Writer:
    def __init__(self, forces: set[Path]) -> None:
        self.forces = forces
        self.lines: list[DiffLine] = []
        self.left_out = 0
        self.characters = MOST_CHARACTERS
        self.steps = MOST_STEPS

    def finish(self) -> list[DiffLine]:
        if self.left_out:
            self.lines.append(DiffLine(" ", 0, f"# {self.left_out} more lines, in the raw plan"))
        return self.lines

    def add(self, sign: str, depth: int, text: str) -> None:
        text = shorten(text, MAX_LINE_LENGTH)
        if self.is_full:
            self.left_out += 1
            return
        self.lines.append(DiffLine(sign, depth, text))
        self.characters -= len(text)

    def add_lines(self, sign: str, depth: int, lines: Iterable[str]) -> None:
        for line in lines:
            self.add(sign, depth, shorten(line))

    @property
    def is_full(self) -> bool:
        return len(self.lines) >= MOST_LINES or self.characters <= 0

    # -- a mapping, or the attributes of a resource ------------------------------------------------
    def members(self, old: _Side, new: _Side, depth: int, path: Path) -> None:
        keys = sorted({*map(str, old.keys()), *map(str, new.keys())})
        shown, same = [], 0
        for number, key in enumerate(keys):
            if self.is_full:  # hidden attributes are not compared
                self.left_out += len(keys) - number
                return
            a, b = old.child(key), new.child(key)
            sign = sign_of(a, b)
            if sign is None:
                continue
            if (
                sign == " "
                and not (depth == 0 and key in ALWAYS_SHOWN and a.is_leaf)
                and not (a.is_hidden or b.is_hidden)
            ):
                same += 1
            else:
                shown.append((key, sign, a, b))
        width = max(
            (len(key) for key, _, a, b in shown if (a if a.is_there else b).is_leaf or b.is_leaf),
            default=0,
        )
        for key, sign, a, b in shown:
            self.value(f"{key:<{min(width, 40)}} = ", f"{key} = ", sign, a, b, depth, (*path, key))
        if same:
            self.add(" ", depth, f"# {same} unchanged attribute{'s' if same > 1 else ''}")

    # -- one value, after its name -----------------------------------------------------------------
    def value(
        self, lead: str, lead_open: str, sign: str, old: _Side, new: _Side, depth: int, path: Path
    ) -> None:
        note = "   # forces replacement" if path in self.forces else ""
        only = old if sign == "-" else new
        if sign in "+- " or not (old.is_there and new.is_there):
            if only.is_leaf:
                maybe = (
                    "   # may change: sensitive values are not compared"
                    if sign == " " and only.is_hidden and old.is_there and new.is_there
                    else ""
                )
                self.text_value(sign, depth, lead, only, note or maybe)
            else:
                self.container(
                    lead_open,
                    sign,
                    _Side() if sign == "+" else old,
                    _Side() if sign == "-" else new,
                    depth,
                    path,
                    note,
                )
            return
        if old.is_leaf or new.is_leaf:
            self.changed(lead, old, new, depth, note, path)
        else:
            self.container(lead_open, sign, old, new, depth, path, note)

    def text_value(self, sign: str, depth: int, lead: str, side: _Side, note: str) -> None:
        value = side.shown_text
        if value is not None and _has_lines(value):
            self.add(sign, depth, f"{lead}<<EOT{note}")
            self.add_lines(sign, depth + 1, _lines(value))
            self.add(sign, depth, "EOT")
        else:
            self.add(sign, depth, f"{lead}{side.text}{note}")

    def changed(self, lead: str, old: _Side, new: _Side, depth: int, note: str, path: Path) -> None:
        before, after = old.shown_text, new.shown_text
        if before is not None and after is not None:
            a, b = _as_json(before), _as_json(after)
            if a is not None and b is not None and type(a) is type(b):
                self.container(f"{lead}jsonencode ", "~", _Side(a), _Side(b), depth, path, note)
                return
            if _has_lines(before) or _has_lines(after):
                self.text_lines(lead, before, after, depth, note)
                return
        if not old.is_leaf or not new.is_leaf:  # the type of the value changes
            self.value(lead, lead, "-", old, _Side(), depth, ())
            self.value(lead, lead, "+", _Side(), new, depth, ())
            return
        self.add("~", depth, f"{lead}{old.text} -> {new.text}{note}")

    def text_lines(self, lead: str, old: str, new: str, depth: int, note: str) -> None:
        self.add("~", depth, f"{lead}<<EOT{note}")
        a, b = _lines(old), _lines(new)
        for tag, i, j, k, m in self.compare(a, b):
            if tag == "equal":
                same = a[i:j]
                if len(same) > 5:
                    same[2:-2] = [f"# {len(same) - 4} unchanged lines"]
                self.add_lines(" ", depth + 1, same)
            else:
                self.add_lines("-", depth + 1, a[i:j])
                self.add_lines("+", depth + 1, b[k:m])
        self.add(" ", depth, "EOT")

    def compare(self, a: Sequence[str], b: Sequence[str]) -> list[tuple[str, int, int, int, int]]:
        """Operation codes of SequenceMatcher. Beyond the limit of steps, only the equal ends match
        and the part between them counts as replaced.
        """
        shorter = min(len(a), len(b))
        begin = next((n for n in range(shorter) if a[n] != b[n]), shorter)
        end = next((n for n in range(shorter - begin) if a[-1 - n] != b[-1 - n]), shorter - begin)
        one, two = a[begin : len(a) - end], b[begin : len(b) - end]
        there = Counter(two)
        steps = (len(one) + sum(there[each] for each in one)) * max(1, min(len(one), len(two)))
        found = [("replace", 0, len(one), 0, len(two))] if one or two else []
        if steps <= self.steps:
            self.steps -= steps
            found = list(SequenceMatcher(None, one, two, autojunk=False).get_opcodes())
        codes = [(tag, i + begin, j + begin, k + begin, m + begin) for tag, i, j, k, m in found]
        before = [("equal", 0, begin, 0, begin)] if begin else []
        after = [("equal", len(a) - end, len(a), len(b) - end, len(b))] if end else []
        return [*before, *codes, *after]

    def container(
        self, lead: str, sign: str, old: _Side, new: _Side, depth: int, path: Path, note: str
    ) -> None:
        shape = old.value if old.value is not None else new.value
        if depth >= DEEPEST:
            self.add(sign, depth, f"{lead}# nested too deeply to be shown; see the raw plan")
            return
        brackets, write = ("[]", self.items) if isinstance(shape, list) else ("{}", self.members)
        self.add(sign, depth, f"{lead}{brackets[0]}{note}")
        write(old, new, depth + 1, path)
        self.add(" " if sign == "~" else sign, depth, brackets[1])

    # -- a list ------------------------------------------------------------------------------------
    def items(self, old: _Side, new: _Side, depth: int, path: Path) -> None:
        same = 0
        for a, b, index in self.pairs(old, new):
            if self.is_full:
                self.left_out += 1
                continue
            sign = sign_of(a, b) or " "
            if sign == " " and not (a.is_hidden or b.is_hidden):
                same += 1
                continue
            self.value("", "", sign, a, b, depth, (*path, index))
        if same:
            self.add(" ", depth, f"# {same} unchanged element{'s' if same > 1 else ''}")

    def pairs(self, old: _Side, new: _Side) -> Iterable[tuple[_Side, _Side, int]]:
        a, b = old.keys(), new.keys()
        is_small = a and b and len(a) + len(b) <= MOST_COMPARED
        if (
            not is_small
            or isinstance(old.hidden, list)
            or isinstance(new.hidden, list)
            or self.steps <= 0
        ):
            for index in range(max(len(a), len(b))):
                yield old.child(index), new.child(index), index
            return
        left, right = (
            [_print(side.child(i)) for i in range(n)] for side, n in ((old, len(a)), (new, len(b)))
        )
        self.steps -= sum(map(len, (*left, *right)))
        for tag, i, j, k, m in self.compare(left, right):
            if tag in ("equal", "replace"):
                for step in range(max(j - i, m - k)):
                    one = old.child(i + step) if i + step < j else _Side()
                    two = new.child(k + step) if k + step < m else _Side()
                    yield one, two, i + step if i + step < j else k + step
            else:
                yield from ((old.child(n), _Side(), n) for n in range(i, j))
                yield from ((_Side(), new.child(n), n) for n in range(k, m))


def sign_of(old: _Side, new: _Side) -> str | None:
    """None: the value is on neither side. The line of a sensitive value is never left out, because
    the redacted values may be equal although the real ones differ.
    """
    if not old.is_there:
        return "+" if new.is_there or _has_unknown(new.unknown) else None
    if not new.is_there and not _has_unknown(new.unknown):
        return "-"
    if old.is_hidden and new.is_hidden:
        return "~" if old.value != new.value else " "
    if old.is_hidden != new.is_hidden or _has_unknown(new.unknown):
        return "~"
    return " " if old.value == new.value else "~"


def _print(side: _Side) -> str:
    return json.dumps([side.value, side.unknown], sort_keys=True, default=str)


def _has_unknown(mark: object) -> bool:
    if isinstance(mark, dict | list):
        return any(map(_has_unknown, mark.values() if isinstance(mark, dict) else mark))
    return mark is True


def _has_lines(text: str) -> bool:
    return "\n" in text.strip("\n")


def _lines(text: str) -> list[str]:
    return text.rstrip("\n").split("\n")


def _at(value: object, key: object) -> object:
    """The part at `key`. A mark on the whole applies to each part."""
    if value is True:
        return True
    if isinstance(value, dict):
        return value.get(key)
    if isinstance(value, list) and isinstance(key, int):
        return value[key] if key < len(value) else None
    return None


def _as_json(text: str) -> object:
    if text[:1] not in "{[" or len(text) > 100_000:
        return None
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict | list) else None


def quote(value: object) -> str:
    """A text, a number, true, false or null as JSON."""
    if isinstance(value, str):
        return json.dumps(shorten(value), ensure_ascii=False)
    return shorten(json.dumps(value, ensure_ascii=False))


def shorten(text: str, longest: int = MAX_VALUE_LENGTH) -> str:
    return (
        text
        if len(text) <= longest
        else f"{text[:longest]}… ({len(text) - longest:,} more characters)"
    )
