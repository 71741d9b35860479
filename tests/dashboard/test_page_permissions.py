"""Permissions of every page and dialog: without a session, and for each role."""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db import transaction
from django.test import Client
from django.urls import URLPattern, URLResolver, get_resolver

from claims.models import Claim, Plan
from pools.access.permissions import ADMIN, APPROVER, CLAIMANT, OPERATOR, ROLES, VIEWER
from pools.models import Pool
from pools.roles.services import create_grant
from project.kernel.models import Event
from tests.api.world import World, standing, world
from tests.dashboard.plain_browser import browser_of, html_of

__all__ = ["standing", "world"]  # fixtures

MAY = {
    VIEWER: set(ROLES),
    CLAIMANT: {CLAIMANT, OPERATOR, ADMIN},
    OPERATOR: {OPERATOR, ADMIN},
    APPROVER: {APPROVER},
    ADMIN: {ADMIN},
}
PUBLIC = "public"  # without a session
SIGNED_IN = "signed in"  # the content depends on the roles
SOMEWHERE = "somewhere"  # claimants of any pool
OWNER = "owner"  # the owner of the token only
PROBE = "probe"  # Prometheus: an address of this machine, or a token of its own
HERE, EVERYWHERE = "here", "everywhere"
EITHER_POOL = "either pool"  # the pool of the workspace, or the one that it is shared with
CASES = [
    ("", EVERYWHERE),
    ("superuser", EVERYWHERE),
    *((role, where) for role in ROLES for where in (HERE, "elsewhere", EVERYWHERE)),
]


@dataclass(frozen=True)
class Row:
    role: str
    where: str = HERE  # where the role is needed
    also: frozenset[str] = frozenset()  # further roles that may
    path: Callable[[World], str] | None = None
    methods: tuple[str, ...] = ("GET", "POST")
    prepare: Callable[[World], object] | None = None
    # A dialog of chosen claims: what the caller may not change is left out, and the dialog can
    # then not be confirmed. The function returns the fields that choose a claim and complete it.
    chosen: Callable[[World], dict[str, str]] | None = None


def on_pending(action: str) -> Callable[[World], str]:
    return lambda world: f"claims/{world.pending}/{action}/"


def on_plan(rest: str) -> Callable[[World], str]:
    def path(world: World) -> str:
        return f"claims/{world.pending}/plan/{Plan.objects.get(claim_id=world.pending).pk}/{rest}"

    return path


def let_members_sign_in(world: World) -> None:
    pool = Pool.objects.get(pk=world.pool.pk)
    Pool.objects.filter(pk=pool.pk).update(spec={**pool.spec, "liveness": {"heartbeat": "10s"}})


def choose_plan(world: World) -> dict[str, str]:
    claim = str(world.pending)
    return {"claim": claim, "plan": f"{claim}:{'0a' * 32}", "reason": "a test", "for": "1h"}


GET, POST = ("GET",), ("POST",)
EITHER = frozenset({APPROVER})
POOL, MEMBER, CLAIM = "pools/<str:name>/", "members/<id:member_id>/", "claims/<id:claim_id>/"
STATE = f"{CLAIM}state/<id:generation>/"
ROWS = {
    # -- no person
    "healthz": Row(PUBLIC, methods=GET),
    "readyz": Row(PUBLIC, methods=GET),
    "metrics": Row(PROBE, methods=GET),
    "favicon.ico": Row(PUBLIC, methods=GET),
    "agent/berth-agent.pyz": Row(PUBLIC, methods=GET),
    "login/": Row(PUBLIC),
    "logout/": Row(PUBLIC, methods=POST),
    "api/schema/": Row(PUBLIC, methods=GET),
    "api/schema/pool.json": Row(PUBLIC, methods=GET),
    "api/docs/": Row(PUBLIC, methods=GET),
    # -- lists
    "": Row(SIGNED_IN, methods=GET),
    "events/": Row(SIGNED_IN, methods=GET),
    "scaling/": Row(SIGNED_IN, methods=GET),
    "search/": Row(SIGNED_IN, methods=GET, path=lambda world: "search/?q=one"),
    "claims/": Row(SIGNED_IN, methods=GET),
    "approvals/": Row(SIGNED_IN, methods=GET),
    "workspaces/": Row(SIGNED_IN, methods=GET),
    "tokens/": Row(SIGNED_IN),
    "tokens/<id:token_id>/revoke/": Row(OWNER),
    "sample/load/": Row(ADMIN, EVERYWHERE, methods=POST),
    "sample/remove/": Row(ADMIN, EVERYWHERE),
    # -- pools
    "pools/new/": Row(ADMIN, EVERYWHERE),
    POOL: Row(VIEWER, methods=GET),
    f"{POOL}edit/": Row(ADMIN),
    f"{POOL}delete/": Row(ADMIN),
    f"{POOL}pause/": Row(OPERATOR),
    f"{POOL}resume/": Row(OPERATOR),
    f"{POOL}drain/": Row(OPERATOR),
    f"{POOL}members/add/": Row(ADMIN),
    f"{POOL}members/<id:member_id>/": Row(VIEWER, methods=GET),
    f"{POOL}ports/<id:slot_id>/": Row(VIEWER, methods=GET),
    f"{POOL}sweep/": Row(OPERATOR),
    **{
        f"{POOL}scaling/{order}/": Row(OPERATOR)
        for order in (
            "pin",
            "unpin",
            "pause",
            "resume",
            "grow",
            "roll",
            "pause-roll",
            "resume-roll",
            "unfreeze",
            "refreeze",
        )
    },
    # -- members and slots
    **{
        f"{MEMBER}{action}/": Row(OPERATOR)
        for action in (
            "cordon",
            "uncordon",
            "remove",
            "keep",
            "restart",
            "drain",
            "force-drain",
            "undrain",
            "evacuate",
            "undo-evacuation",
            "return-claim/<id:claim_id>",
        )
    },
    f"{MEMBER}token/": Row(ADMIN, prepare=let_members_sign_in),
    f"{MEMBER}rotate/": Row(ADMIN),
    "slots/<id:slot_id>/claim/": Row(OPERATOR),
    "slots/<id:slot_id>/repair/": Row(OPERATOR),
    "slots/<id:slot_id>/quarantine/": Row(OPERATOR),
    "slots/<id:slot_id>/end-quarantine/": Row(OPERATOR),
    f"{POOL}strays/<id:stray_id>/adopt/": Row(OPERATOR),
    f"{POOL}strays/<id:stray_id>/delete/": Row(OPERATOR),
    f"{POOL}strays/<id:stray_id>/keep/": Row(OPERATOR),
    # -- claims
    "claims/new/": Row(SOMEWHERE),
    "claims/run/": Row(SOMEWHERE),
    "claims/release/": Row(OPERATOR, chosen=lambda world: {"claim": str(world.claim)}),
    "claims/cancel/": Row(OPERATOR, chosen=lambda world: {"claim": str(world.waiting)}),
    "claims/prioritise/": Row(
        OPERATOR, chosen=lambda world: {"claim": str(world.waiting), "priority": "5"}
    ),
    CLAIM: Row(VIEWER, methods=GET),
    f"{CLAIM}release/": Row(OPERATOR),
    f"{CLAIM}force-release/": Row(OPERATOR),
    f"{CLAIM}cancel/": Row(OPERATOR),
    f"{CLAIM}prioritise/": Row(OPERATOR),
    f"{CLAIM}backend/": Row(OPERATOR),
    # -- plans and approvals
    f"{CLAIM}plan/<id:plan_id>/changes/": Row(VIEWER, path=on_plan("changes/"), methods=GET),
    f"{CLAIM}plan/<id:plan_id>/changes/<id:number>/": Row(
        VIEWER, path=on_plan("changes/0/"), methods=GET
    ),
    f"{CLAIM}plan/<id:plan_id>/raw/": Row(VIEWER, path=on_plan("raw/"), methods=GET),
    "approvals/<id:claim_id>/": Row(
        VIEWER, path=lambda world: f"approvals/{world.pending}/", methods=GET
    ),
    f"{CLAIM}approve/": Row(APPROVER, path=on_pending("approve")),
    f"{CLAIM}reject/": Row(APPROVER, path=on_pending("reject")),
    f"{CLAIM}extend/": Row(OPERATOR, also=EITHER, path=on_pending("extend")),
    f"{CLAIM}plan-again/": Row(OPERATOR, path=on_pending("plan-again")),
    f"{CLAIM}move/": Row(OPERATOR, path=on_pending("move")),
    "approvals/approve/": Row(APPROVER, chosen=choose_plan),
    "approvals/reject/": Row(APPROVER, chosen=choose_plan),
    "approvals/extend/": Row(APPROVER, chosen=choose_plan),
    STATE: Row(APPROVER, methods=GET),
    f"{STATE}discard/": Row(OPERATOR, also=EITHER),
    # -- workspaces
    "workspaces/<path:name>/": Row(VIEWER, methods=GET),
    "workspace/lock/<path:name>/": Row(OPERATOR),
    "workspace/unlock/<path:name>/": Row(OPERATOR),
    "workspace/share/<path:name>/": Row(OPERATOR),
    "workspace/unshare/<path:name>/": Row(
        OPERATOR, EITHER_POOL, path=lambda world: "workspace/unshare/one/shared/?pool=two"
    ),
    "workspace/settle/<path:name>/": Row(OPERATOR, also=EITHER),
}


def list_pages() -> Iterator[str]:
    """Every address but the REST API (tests/api) and the admin (tests/admin)."""

    def walk(patterns: list[Any], prefix: str) -> Iterator[str]:
        for pattern in patterns:
            route = prefix + str(pattern.pattern)
            if isinstance(pattern, URLResolver):
                yield from walk(pattern.url_patterns, route)
            elif isinstance(pattern, URLPattern) and not route.startswith(("api/v1/", "admin/")):
                yield route

    yield from walk(get_resolver().url_patterns, "")


@pytest.fixture(scope="module")
def browsers(standing: World, django_db_blocker: Any) -> dict[tuple[str, str], Client]:
    """A signed-in browser of each role, in the pool of the claims, in another, and in all pools."""
    found = {}
    with django_db_blocker.unblock():
        for role, where in CASES:
            user = User.objects.create_user(f"{role or 'nobody'}-{where}")
            if role == "superuser":
                User.objects.filter(pk=user.pk).update(is_superuser=True)
            elif role:
                pool = {HERE: standing.pool, "elsewhere": standing.other}.get(where)
                create_grant(role=role, user=user, pool=pool)
            found[role, where] = browser_of(user)
    return found


def path_of(page: str, world: World) -> str:
    row = ROWS[page]
    if row.path is not None:
        return f"/{row.path(world)}"
    named = page.replace("<path:name>", "one/team/net").replace("<str:name>", world.pool.name)
    return f"/{world.fill(named)}"


def call(client: Client, method: str, path: str, fields: dict[str, str]) -> Any:
    """The response; its changes are rolled back."""
    with transaction.atomic():
        answer = client.get(path, fields) if method == "GET" else client.post(path, fields)
        if answer.streaming:
            answer.getvalue()
        transaction.set_rollback(True)
    return answer


def holds(row: Row, role: str, where: str) -> bool:
    """True if the row allows this role, held there."""
    if role == "superuser":  # a superuser counts as an admin of every pool
        role = ADMIN
    if row.role == SOMEWHERE:
        return role in MAY[CLAIMANT]
    if row.role == OWNER:
        return False
    if row.where == EITHER_POOL:
        return role in MAY[row.role]
    reaches = where == EVERYWHERE or (where == HERE and row.where == HERE)
    return reaches and role in MAY[row.role] | row.also


def sees(row: Row, role: str, where: str) -> bool:
    """True if the page's object exists for this role. An action in all pools has no object."""
    if row.where == EVERYWHERE:
        return True
    return bool(role) and (where != "elsewhere" or row.where == EITHER_POOL)


def test_every_page_has_a_row_in_the_table_of_permissions() -> None:
    assert sorted(ROWS) == sorted(list_pages())


@pytest.mark.parametrize("page", sorted(ROWS))
def test_a_page_without_a_session_leads_to_the_sign_in(page: str, world: World) -> None:
    row = ROWS[page]
    for method in row.methods:
        answer = call(Client(), method, path_of(page, world), {})
        case = (page, method, answer.status_code)
        if row.role == PROBE:
            assert answer.status_code == 200, case
            forwarded = Client(headers={"X-Forwarded-For": "192.0.2.7"})
            assert call(forwarded, method, path_of(page, world), {}).status_code == 403, case
        elif row.role == PUBLIC:
            assert answer.status_code not in (401, 403, 404), case
            assert "?next=" not in answer.get("Location", ""), case
        else:
            assert answer.status_code == 302, case
            assert answer["Location"].startswith("/login/?next="), case


@pytest.mark.parametrize("page", sorted(set(ROWS) - {"metrics"}))
def test_each_role_opens_exactly_its_pages(
    page: str, world: World, browsers: dict[tuple[str, str], Client]
) -> None:
    row = ROWS[page]
    if row.prepare is not None:
        row.prepare(world)
    if row.chosen is not None:
        check_chosen(page, world, browsers)
        return
    for (role, where), client in browsers.items():
        for method in row.methods:
            case = (page, method, role, where)
            if row.role == PUBLIC and page == "logout/":
                continue  # it would end the session of this browser
            answer = call(client, method, path_of(page, world), {})
            status, html = answer.status_code, answer.content
            allowed = {200, 302, 409, 422} | ({503} if row.role == PUBLIC else set())
            if row.role in (PUBLIC, SIGNED_IN) or holds(row, role, where):
                assert status in allowed, (case, status)
                if row.role == SIGNED_IN and not sees(row, role, where):
                    assert not shown_of(world, html), case
            elif row.role == OWNER or (row.role != SOMEWHERE and not sees(row, role, where)):
                assert status == 404, (case, status)
                assert b"This needs the role" not in html, case
            else:
                assert status == 403, (case, status)
                assert b"This needs the role" in html, case


def shown_of(world: World, html: bytes) -> list[str]:
    """What a page shows of the pool, its claims and its workspaces."""
    hidden = [f"/pools/{world.pool.name}/", "team/net"]
    hidden += [f"/claims/{claim}/" for claim in (world.claim, world.waiting, world.pending)]
    return [text for text in hidden if text.encode() in html]


def check_chosen(page: str, world: World, browsers: dict[tuple[str, str], Client]) -> None:
    """A dialog of chosen claims can be confirmed with the role. Without it, also the form that a
    browser with the role would send changes nothing.
    """
    row, path = ROWS[page], path_of(page, world)
    assert row.chosen is not None
    fields = row.chosen(world)
    seen = read_seen(browsers[next(case for case in CASES if holds(row, *case))], path, fields)
    assert seen
    before = read_claim(int(fields["claim"]))
    for case, client in browsers.items():
        may = holds(row, *case)
        assert (read_seen(client, path, fields) == seen) is may, (page, case)
        with transaction.atomic():
            answer = client.post(path, {**fields, "seen": seen})
            changed = read_claim(int(fields["claim"])) != before
            transaction.set_rollback(True)
        expected = (302, True) if may else (409, False)
        found = (answer.status_code, changed)
        assert found == expected, (page, case, html_of(answer)[-1500:])


def read_seen(client: Client, path: str, fields: dict[str, str]) -> str:
    """What the browser sends back to say which affected objects the dialog showed."""
    shown = call(client, "GET", path, fields)
    assert shown.status_code == 200, path
    found = re.search(rb'name="seen" value="(\w+)"', shown.content)
    return found[1].decode() if found else ""


def read_claim(claim_id: int) -> tuple[object, ...]:
    """The claim's row and the number of its events."""
    return (
        *Claim.objects.filter(pk=claim_id).values(),
        Event.objects.filter(claim_id=claim_id).count(),
    )


def test_a_person_may_revoke_its_own_token(world: World) -> None:
    client = browser_of(User.objects.get(username="holder"))
    assert (
        call(client, "GET", path_of("tokens/<id:token_id>/revoke/", world), {}).status_code == 200
    )
