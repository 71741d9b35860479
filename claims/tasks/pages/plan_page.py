"""A plan on its claim's page: the riskiest changes first. Attributes load when a user opens a
change, long lists load page by page.
"""

import json
import threading
from collections import Counter, OrderedDict
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from urllib.parse import urlencode

from django.http import HttpResponse, HttpResponseBase, StreamingHttpResponse
from django.shortcuts import render
from django.urls import reverse

from claims.allocation.api.permissions import may_see
from claims.allocation.selectors import no_such_claim, view_claim
from claims.models import Plan
from claims.tasks.files.sealed_files import iterate_file, read_file, storage
from claims.tasks.plans.outlines import read_outline_of
from claims.tasks.plans.plan_changes import (
    Counts,
    NotAPlan,
    PlanTree,
    ResourceChange,
    ResourceGroup,
    groups_of,
    in_group,
    lines_of,
    matching,
    read_outline,
)
from claims.tasks.plans.value_diff import DiffLine
from pools.access.permissions import Identity
from pools.pages.base import PageRequest, signed_in
from project.kernel.errors import NotFound, Unavailable
from project.kernel.ui import formatting

PAGE = 100  # resources or groups in one answer
FLAT = 60  # changes without risk that are listed singly; more are grouped
EMBEDDED = 25  # changes whose attributes come with the page
OPENED = 5  # risky changes that are open at first
JSON = "application/json; charset=utf-8"
FATES = {  # by action: the noun, and what happens to the resource
    "delete": ("destruction", "destroyed"),
    "replace": ("replacement", "destroyed and created again"),
    "forget": ("resource to forget", "forgotten"),
}
KEPT = 48 << 20  # bytes of memory that outlines of plans may take
PRETTY = 2 << 20
MOST_EMBEDDED = 500_000  # bytes of attributes and their lines in one answer


class _Plans:
    """Cache of the outlines of plans."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._read: OrderedDict[str, PlanTree | str] = OrderedDict()

    def get(self, plan: Plan) -> PlanTree:
        key = str(plan.json_file)
        with self._lock:
            found = self._read.pop(key, None)
        if found is None:
            try:
                found = read_outline(read_outline_of(plan))
            except NotAPlan as error:
                found = error.detail
        with self._lock:
            self._read[key] = found
            while (
                len(self._read) > 1
                and sum(tree.memory for tree in self._read.values() if isinstance(tree, PlanTree))
                > KEPT
            ):
                self._read.popitem(last=False)
        if isinstance(found, str):
            raise NotAPlan(found)
        return found


tree_of = _Plans().get


@dataclass(frozen=True, slots=True)
class Entry:
    """A row of the list."""

    change: ResourceChange
    href: str
    lines: list[DiffLine] | None = None
    is_open: bool = False


@dataclass(frozen=True, slots=True)
class GroupEntry:
    group: ResourceGroup
    href: str

    @property
    def mixed(self) -> Counts | None:
        """Counts of a group with different changes."""
        return self.group.counts if self.sign[1] == "z" else None

    @property
    def size_words(self) -> str:
        return formatting.plural(self.group.size, "resource")

    @property
    def sign(self) -> tuple[str, str]:
        """Sign and class of a group with equal changes."""
        counts = self.group.counts
        if counts.add == self.group.size:
            return "+", "add"
        return ("~", "chg") if counts.change == self.group.size else ("·", "z")


def changes_url(plan: Plan) -> str:
    return reverse("claim-plan-changes", args=[plan.claim_id, plan.pk])


def plan_context(plan: Plan) -> dict[str, object]:
    """The parts that the page shows at once."""
    try:
        tree = tree_of(plan)
    except NotAPlan as error:
        return {"problem": f"{error} The plan’s log shows what it changes."}
    except (NotFound, Unavailable) as error:
        return {"problem": f"{error.detail} {error.way_out}"}
    risky, others = tree.risky, tree.others
    is_small = len(tree.changes) <= EMBEDDED
    context: dict[str, object] = {
        "tree": tree,
        "total": len(tree.changes),
        "is_long": len(tree.changes) > EMBEDDED,
        "search": changes_url(plan),
        "risky": page_of(plan, risky, {"show": "risky"}, opened=OPENED),
        "outputs": entries_of(
            plan, tree.outputs[:PAGE], embedded=EMBEDDED if len(tree.outputs) <= EMBEDDED else 0
        ),
        "drift": page_of(plan, tree.drift, {"show": "drift"}),
        "warning": warning_of(risky),
    }
    if len(others) <= FLAT:
        return context | {
            "others": page_of(
                plan, others, {"show": "others"}, embedded=EMBEDDED if is_small else 0
            )
        }
    return context | {"groups": groups_page(plan, groups_of(others))}


def warning_of(risky: list[ResourceChange]) -> tuple[str, list[str], int, str] | None:
    """The counts, three addresses, the number of further ones, and what happens to them."""
    if not risky:
        return None
    counts = Counter(change.action for change in risky)
    named = [(counts[action], *texts) for action, texts in FATES.items() if counts[action]]
    counted = formatting.sentence([formatting.plural(number, word) for number, word, _ in named])
    then = formatting.sentence([fate for _, _, fate in named], "or")
    return counted, [change.address for change in risky[:3]], max(0, len(risky) - 3), then


def page_of(
    plan: Plan,
    changes: Sequence[ResourceChange],
    query: dict[str, str],
    *,
    offset: int = 0,
    opened: int = 0,
    embedded: int = OPENED,
) -> dict[str, object]:
    """A page of a list, and the address of the next page."""
    shown = changes[offset : offset + PAGE]
    left = max(0, len(changes) - offset - len(shown))
    following = urlencode(query | {"from": str(offset + PAGE)})
    more = f"{changes_url(plan)}?{following}" if left else ""
    found = entries_of(plan, shown, embedded=max(opened, embedded), opened=opened)
    return {"entries": found, "more": more, "left": left}


def groups_page(plan: Plan, groups: list[ResourceGroup], offset: int = 0) -> dict[str, object]:
    address = changes_url(plan)
    shown = groups[offset : offset + PAGE]
    left = max(0, len(groups) - offset - len(shown))
    return {
        "groups": [
            GroupEntry(group, f"{address}?{urlencode({'group': group.key})}") for group in shown
        ],
        "more": f"{address}?{urlencode({'show': 'groups', 'from': offset + PAGE})}" if left else "",
        "left": left,
    }


def entries_of(
    plan: Plan, changes: Sequence[ResourceChange], *, embedded: int, opened: int = 0
) -> list[Entry]:
    """Rows of the changes. The first `embedded` rows come with their attributes, as far as the
    answer stays small; the other rows load them when opened.
    """
    found = []
    left = MOST_EMBEDDED
    for place, change in enumerate(changes):
        lines = lines_of(change) if place < embedded and change.size <= left else None
        if lines is not None:
            left -= change.size + sum(len(line.text) for line in lines)
        href = reverse("claim-plan-change", args=[plan.claim_id, plan.pk, change.number])
        found.append(Entry(change, href, lines, lines is not None and place < opened))
    return found


# -- parts that load later -------------------------------------------------------------------------


def plan_for(identity: Identity, claim_id: int, plan_id: int) -> Plan:
    claim = view_claim(claim_id)
    if not may_see(identity, claim):
        raise no_such_claim(claim_id)
    plan = Plan.objects.filter(pk=plan_id, claim_id=claim_id).first()
    if plan is None or not plan.json_file:
        raise NotFound("This plan does not exist.", way_out="Open the page of its claim.")
    return plan


def read_tree(plan: Plan) -> PlanTree:
    try:
        return tree_of(plan)
    except NotAPlan as error:
        raise NotFound(str(error), way_out="The plan’s log shows what it changes.") from None


@signed_in
def list_changes(request: PageRequest, claim_id: int, plan_id: int) -> HttpResponse:
    """A page of a list: of a group, of the results of a search, or of all changes."""
    plan = plan_for(request.identity, claim_id, plan_id)
    tree = read_tree(plan)
    start = request.GET.get("from", "")
    offset = int(start) if start.isdecimal() and len(start) < 9 else 0
    show, group = request.GET.get("show", ""), request.GET.get("group", "")
    text = request.GET.get("q", "").strip()[:200]
    if show == "groups":
        return render(
            request,
            "claims/tasks/plan_groups.html",
            groups_page(plan, groups_of(tree.others), offset),
        )
    if group:
        found, query = in_group(tree.others, group), {"group": group}
    elif text:
        found, query = matching(tree.changes, text), {"q": text}
    else:
        lists = {"risky": tree.risky, "others": tree.others, "drift": list(tree.drift)}
        found, query = lists.get(show, list(tree.changes)), {"show": show}
    return render(
        request,
        "claims/tasks/plan_changes.html",
        page_of(plan, found, query, offset=offset, embedded=0) | {"searched": text},
    )


@signed_in
def show_change(request: PageRequest, claim_id: int, plan_id: int, number: int) -> HttpResponse:
    change = read_tree(plan_for(request.identity, claim_id, plan_id)).find(number)
    if change is None:
        raise NotFound("This plan has no such resource.", way_out="Reload the page.")
    return render(request, "claims/tasks/plan_lines.html", {"lines": lines_of(change)})


@signed_in
def show_raw(request: PageRequest, claim_id: int, plan_id: int) -> HttpResponseBase:
    """The stored JSON, which the agent has redacted."""
    plan = plan_for(request.identity, claim_id, plan_id)
    name = str(plan.json_file)
    if storage().exists(name) and storage().size(name) < PRETTY:
        data = read_file(name)
        with suppress(ValueError, RecursionError):  # unreadable JSON is sent unchanged
            data = json.dumps(json.loads(data), indent=2, ensure_ascii=False).encode()
        answer: HttpResponseBase = HttpResponse(data, content_type=JSON)
    else:
        answer = StreamingHttpResponse(iterate_file(name), content_type=JSON)
    answer["Content-Disposition"] = f'inline; filename="plan-{claim_id}-{plan.generation}.json"'
    answer["X-Content-Type-Options"] = "nosniff"
    return answer
