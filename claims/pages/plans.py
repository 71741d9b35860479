"""A plan on its claim's page: what it would do, the riskiest first; attributes are read when somebody opens them, long lists by pages."""

import json
import threading
from collections import Counter, OrderedDict
from contextlib import suppress
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode

from django.http import HttpResponse
from django.shortcuts import render
from django.urls import reverse

from claims.api.rules import may_see, no_such_claim
from claims.models import Plan
from claims.runs.files import read_file
from claims.runs.plandiff import Line
from claims.runs.planjson import Change, Group, NotAPlan, PlanTree, groups_of, in_group, lines_of, matching, read_plan
from claims.selectors import view_claim
from pools.access import Identity
from pools.pages import signed_in
from project.kernel import words
from project.kernel.errors import NotFound

PAGE = 100  # resources or groups that are sent at once
FLAT = 60  # beside those at risk; more of them stand in groups
EMBEDDED = 25  # whose attributes come with the page
OPENED = 5  # of those at risk
FATES = {  # of what is at risk: one of it, and what becomes of it
    "delete": ("destruction", "destroyed"),
    "replace": ("replacement", "destroyed and made anew"),
    "forget": ("resource to forget", "forgotten"),
}
KEPT = 48 << 20  # bytes of plans kept read
PRETTY = 2 << 20


class _Plans:
    """Plans that were read lately. One is read at a time: a large one takes ten times its size meanwhile."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._read: OrderedDict[str, PlanTree | str] = OrderedDict()

    def get(self, name: str) -> PlanTree:
        with self._lock:
            found = self._read.pop(name, None)
            if found is None:
                try:
                    found = read_plan(read_file(name))
                except NotAPlan as error:
                    found = str(error)
            self._read[name] = found
            while len(self._read) > 1 and sum(tree.size for tree in self._read.values() if isinstance(tree, PlanTree)) > KEPT:
                self._read.popitem(last=False)
        if isinstance(found, str):
            raise NotAPlan(found)
        return found


_plans = _Plans()


@dataclass(frozen=True, slots=True)
class Entry:
    """A resource as it stands in the list."""

    change: Change
    href: str
    lines: list[Line] | None = None
    is_open: bool = False


@dataclass(frozen=True, slots=True)
class GroupEntry:
    group: Group
    href: str

    @property
    def sign(self) -> tuple[str, str]:
        """Where all of them have the same lot."""
        counts = self.group.counts
        if counts.add == self.group.size:
            return "+", "add"
        return ("~", "chg") if counts.change == self.group.size else ("·", "z")


def tree_of(plan: Plan) -> PlanTree:
    return _plans.get(str(plan.json_file))


def plan_context(plan: Plan) -> dict[str, Any]:
    """The parts that a page shows at once."""
    try:
        tree = tree_of(plan)
    except NotAPlan as error:
        return {"problem": f"{error} Its log says what it would do."}
    except NotFound as error:
        return {"problem": f"{error.detail} {error.way_out}"}
    risky, others = tree.risky, tree.others
    is_small = len(tree.changes) <= EMBEDDED
    context: dict[str, Any] = {
        "tree": tree,
        "total": len(tree.changes),
        "is_long": len(tree.changes) > EMBEDDED,
        "search": reverse("claim-plan-changes", args=[plan.claim_id, plan.pk]),
        "risky": page_of(plan, risky, {"show": "risky"}, opened=OPENED),
        "outputs": entries_of(plan, tree.outputs[:PAGE], len(tree.outputs) <= EMBEDDED),
        "drift": page_of(plan, tree.drift, {"show": "drift"}),
        "warning": warning_of(risky),
    }
    if len(others) <= FLAT:
        return context | {"others": page_of(plan, others, {"show": "others"}, embedded=EMBEDDED if is_small else 0)}
    return context | {"groups": groups_page(plan, groups_of(others))}


def warning_of(risky: list[Change]) -> tuple[str, list[str], int, str] | None:
    """How many, which (three of them), how many more, and what becomes of them."""
    if not risky:
        return None
    counts = Counter(change.action for change in risky)
    named = [(counts[action], *texts) for action, texts in FATES.items() if counts[action]]
    said = words.sentence([words.plural(number, word) for number, word, _ in named])
    then = words.sentence([fate for _, _, fate in named], "or")
    return said, [change.address for change in risky[:3]], max(0, len(risky) - 3), then


def page_of(plan: Plan, changes: Any, query: dict[str, str], *, offset: int = 0, opened: int = 0, embedded: int = OPENED) -> dict[str, Any]:
    """A piece of a list, and where the rest is."""
    shown = changes[offset : offset + PAGE]
    left = max(0, len(changes) - offset - len(shown))
    more = f"{reverse('claim-plan-changes', args=[plan.claim_id, plan.pk])}?{urlencode(query | {'from': offset + PAGE})}" if left else ""
    found = entries_of(plan, shown[: max(opened, embedded)], True, opened) + entries_of(plan, shown[max(opened, embedded) :], False)
    return {"entries": found, "more": more, "left": left}


def groups_page(plan: Plan, groups: list[Group], offset: int = 0) -> dict[str, Any]:
    address = reverse("claim-plan-changes", args=[plan.claim_id, plan.pk])
    shown = groups[offset : offset + PAGE]
    left = max(0, len(groups) - offset - len(shown))
    return {
        "groups": [GroupEntry(group, f"{address}?{urlencode({'group': group.key})}") for group in shown],
        "more": f"{address}?{urlencode({'show': 'groups', 'from': offset + PAGE})}" if left else "",
        "left": left,
    }


def entries_of(plan: Plan, changes: Any, with_lines: bool, opened: int = 0) -> list[Entry]:
    return [
        Entry(
            change,
            reverse("claim-plan-change", args=[plan.claim_id, plan.pk, change.number]),
            lines_of(change) if with_lines else None,
            place < opened,
        )
        for place, change in enumerate(changes)
    ]


# -- what is asked for later --------------------------------------------------------------------------------------------------------------


def plan_for(identity: Identity, claim_id: int, plan_id: int) -> Plan:
    claim = view_claim(claim_id)
    if not may_see(identity, claim):
        raise no_such_claim(claim_id)
    plan = Plan.objects.filter(pk=plan_id, claim_id=claim_id).first()
    if plan is None or not plan.json_file:
        raise NotFound("There is no such plan.", way_out="Look at the page of its claim.")
    return plan


def read_tree(plan: Plan) -> PlanTree:
    try:
        return tree_of(plan)
    except NotAPlan as error:
        raise NotFound(str(error), way_out="Its log says what it would do.") from None


@signed_in
def list_changes(request: Any, claim_id: int, plan_id: int) -> HttpResponse:
    """A piece of the list: of a group, of what a search finds, from some place on."""
    plan = plan_for(request.identity, claim_id, plan_id)
    tree = read_tree(plan)
    told = request.GET.get("from", "")
    offset = int(told) if told.isdecimal() and len(told) < 9 else 0
    show, group, text = request.GET.get("show", ""), request.GET.get("group", ""), request.GET.get("q", "").strip()[:200]
    if show == "groups":
        return render(request, "parts/plan_groups.html", groups_page(plan, groups_of(tree.others), offset))
    if group:
        found, query = in_group(tree.others, group), {"group": group}
    elif text:
        found, query = matching(tree.changes, text), {"q": text}
    else:
        lists = {"risky": tree.risky, "others": tree.others, "drift": list(tree.drift)}
        found, query = lists.get(show, list(tree.changes)), {"show": show}
    return render(request, "parts/plan_changes.html", page_of(plan, found, query, offset=offset, embedded=0) | {"searched": text})


@signed_in
def show_change(request: Any, claim_id: int, plan_id: int, number: int) -> HttpResponse:
    change = read_tree(plan_for(request.identity, claim_id, plan_id)).find(number)
    if change is None:
        raise NotFound("There is no such resource in this plan.", way_out="Load the page again.")
    return render(request, "parts/plan_lines.html", {"lines": lines_of(change)})


@signed_in
def show_raw(request: Any, claim_id: int, plan_id: int) -> HttpResponse:
    """As it was kept: redacted before it came."""
    plan = plan_for(request.identity, claim_id, plan_id)
    data = read_file(str(plan.json_file))
    if len(data) < PRETTY:
        with suppress(ValueError, RecursionError):  # as it came, then
            data = json.dumps(json.loads(data), indent=2, ensure_ascii=False).encode()
    answer = HttpResponse(data, content_type="application/json; charset=utf-8")
    answer["Content-Disposition"] = f'inline; filename="plan-{claim_id}-{plan.generation}.json"'
    answer["X-Content-Type-Options"] = "nosniff"
    return answer
