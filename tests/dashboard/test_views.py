"""The dashboard over HTTP: what each role sees, what is disabled and why, and what a post does."""

import re
from datetime import timedelta
from urllib.parse import unquote

import pytest
from django.contrib.auth.models import User
from django.test import Client
from django.utils import timezone

from claims.allocation.selectors import view_claim
from claims.models import Claim
from pools.models import Pool, Token
from pools.providers.base import known_providers, texts_of
from pools.providers.display import ProviderTexts
from project.kernel.models import Event
from slots.members.services import pause_pool
from tests.dashboard.helpers import (
    PAGES,
    PASSWORD,
    chief,
    claim,
    make_pool,
    member,
    person,
    slot_of,
)
from tests.dashboard.plain_browser import DIALOG, browser_of, get, html_of, off, post

pytestmark = pytest.mark.django_db


@pytest.mark.parametrize(
    "path", [*PAGES, "/claims/1/", "/pools/new/", "/search/?q=x", "/members/1/cordon/"]
)
def test_an_anonymous_visitor_is_redirected_to_sign_in(path: str) -> None:
    answer = Client().get(path)
    assert answer.status_code == 302
    assert unquote(answer["Location"]) == f"/login/?next={path}"


@pytest.mark.parametrize("path", PAGES)
def test_a_viewer_can_open_every_page(path: str) -> None:
    make_pool()
    claim()
    text = get(browser_of(person("vera", "viewer")), path)
    assert "<h1" in text


def test_a_pool_the_user_may_not_see_answers_404() -> None:
    make_pool("env")
    other = make_pool("other")
    hidden = claim("env", owner="secret-owner")
    client = browser_of(person("vera", "viewer", pool=other))
    get(client, "/pools/env/", 404)
    get(client, f"/claims/{hidden.id}/", 404)
    get(client, f"/pools/env/members/{member('env-1').pk}/", 404)
    get(client, f"/members/{member('env-1').pk}/cordon/", 404)
    for path in ("/", "/claims/?q=", "/events/", "/search/?q=env"):
        text = get(client, path)
        assert "secret-owner" not in text
        assert "env-1" not in text


@pytest.mark.parametrize(
    ("role", "on", "off_because"),
    [
        (
            "viewer",
            [],
            {
                "New claim…": "claimant",
                "Add members…": "admin",
                "Pause…": "operator",
                "Delete…": "admin",
            },
        ),
        ("claimant", ["New claim…"], {"Pause…": "operator", "Edit": "admin"}),
        ("operator", ["New claim…", "Pause…"], {"Add members…": "admin", "Delete…": "admin"}),
        ("admin", ["New claim…", "Add members…", "Pause…", "Edit", "Delete…"], {}),
    ],
)
def test_disabled_buttons_name_the_required_role(
    role: str, on: list[str], off_because: dict[str, str]
) -> None:
    make_pool()
    text = get(browser_of(person("vera", role)), "/pools/env/")
    for word in on:
        assert off(text, word) is None, word
        assert f">{word}</a>" in text
    for word, needed in off_because.items():
        assert off(text, word) == f"This needs the role {needed}."


def test_actions_disabled_on_the_page_are_refused_by_the_server() -> None:
    make_pool()
    held = claim()
    client = browser_of(person("vera", "viewer"))
    paths = [
        f"/claims/{held.id}/release/",
        f"/claims/{held.id}/force-release/",
        f"/members/{member('env-1').pk}/cordon/",
        "/pools/env/pause/",
    ]
    for path in [
        *paths,
        "/pools/env/delete/",
        "/pools/env/edit/",
        "/pools/new/",
        "/pools/env/members/add/",
    ]:
        answer = client.post(path, {"reason": "x"})
        assert answer.status_code == 403, path
        assert b"This needs the role" in answer.content
    assert view_claim(held.id).state == "bound"


def test_the_add_members_dialog_says_what_each_provider_creates() -> None:
    pool = make_pool()
    client = browser_of(chief())
    for provider in known_providers():
        texts = texts_of(provider)
        assert texts != ProviderTexts(), "its dialog would not say what is created"
        Pool.objects.filter(pk=pool.pk).update(provider=provider)
        text = get(client, "/pools/env/members/add/", **DIALOG)
        assert texts.adding in text and texts.takes_claims in text
    assert "pod" in texts_of("kubernetes").adding


@pytest.mark.parametrize("is_agents", [True, False], ids=["agents", "no_agents"])
def test_force_drain_speaks_of_applies_only_where_agents_run_tasks(is_agents: bool) -> None:
    pool = make_pool(slots=["any", "plan"])
    claim(kind="plan")
    if is_agents:
        Pool.objects.filter(pk=pool.pk).update(spec=pool.spec | {"provider": {"kind": "agents"}})
    client = browser_of(chief())
    page = get(client, f"/pools/env/members/{member('env-1').pk}/")
    dialog = get(client, f"/members/{member('env-1').pk}/force-drain/", **DIALOG)
    assert "Ends 1 claim here" in page
    assert ("the outcome of running applies" in page) is is_agents
    assert ("no apply runs twice" in dialog) is is_agents
    assert "no slot is held twice" in dialog


def test_a_claimant_can_release_only_its_own_claims() -> None:
    make_pool()
    cleo = person("cleo", "claimant")
    mine, others = claim(who="cleo"), claim(who="somebody")
    client = browser_of(cleo)
    assert off(get(client, f"/claims/{mine.id}/"), "Release…") is None
    assert "operator" in (off(get(client, f"/claims/{others.id}/"), "Release…") or "")
    assert post(client, f"/claims/{mine.id}/release/").status_code == 204
    assert client.post(f"/claims/{others.id}/release/", {"reason": "x"}).status_code == 403
    assert (view_claim(mine.id).outcome, view_claim(others.id).state) == ("released", "bound")


def test_a_cordon_requires_and_records_a_reason() -> None:
    make_pool()
    claim()
    client = browser_of(chief())
    path = f"/members/{member('env-1').pk}/cordon/"
    shown = get(client, path, **DIALOG)
    assert "1 claim is affected" in shown
    assert post(client, path).status_code == 422
    assert not member("env-1").is_cordoned
    answer = post(client, path, reason="disk warnings")
    assert answer.status_code == 204
    assert "is cordoned" in answer["HX-Trigger"]
    event = Event.objects.get(verb="cordon")
    assert (event.actor, event.reason) == ("ana", "disk warnings")
    assert post(client, f"/members/{member('env-1').pk}/uncordon/").status_code == 204
    assert not member("env-1").is_cordoned


def test_force_release_requires_the_typed_claim_id() -> None:
    make_pool()
    held = claim()
    client = browser_of(chief())
    path = f"/claims/{held.id}/force-release/"
    assert post(client, path, reason="stuck").status_code == 422
    assert post(client, path, reason="stuck", typed="wrong").status_code == 422
    assert view_claim(held.id).state == "bound"
    assert post(client, path, reason="stuck", typed=str(held.id)).status_code == 204
    assert view_claim(held.id).outcome == "cancelled"


def test_a_dialog_is_shown_again_when_its_subject_has_changed() -> None:
    make_pool(slots=2)
    client = browser_of(chief())
    path = f"/members/{member('env-1').pk}/cordon/"
    claim()
    seen = re.search(r'name="seen" value="(\w+)"', get(client, path, **DIALOG))
    assert seen is not None
    claim(owner="came-meanwhile")
    answer = client.post(path, {"reason": "disk", "seen": seen[1]}, headers=DIALOG)
    assert answer.status_code == 409
    assert "2 claims are affected" in answer.content.decode()
    assert not member("env-1").is_cordoned


def test_without_scripts_a_dialog_is_a_page_that_leads_back() -> None:
    make_pool()
    client = browser_of(chief())
    text = get(client, "/pools/env/pause/", Referer="http://testserver/pools/env/")
    assert "<h1" in text
    answer = client.post(
        "/pools/env/pause/", {"reason": "move", "for": "30m", "back": "/pools/env/"}
    )
    assert (answer.status_code, answer["Location"]) == (302, "/pools/env/")
    assert "is paused for 30 min" in get(client, "/pools/env/")


def test_the_back_address_never_leaves_the_site() -> None:
    make_pool()
    client = browser_of(chief())
    for told in ("https://evil.example/", "//evil.example/x", "javascript:alert(1)"):
        answer = client.post("/pools/env/pause/", {"reason": "move", "for": "30m", "back": told})
        assert answer["Location"] == "/"


def test_a_pause_of_invalid_length_is_refused_with_the_fault() -> None:
    make_pool()
    answer = post(browser_of(chief()), "/pools/env/pause/", reason="move", **{"for": "soon"})
    assert answer.status_code == 422
    assert "soon is not a length of time" in answer.content.decode()


def test_a_bulk_release_skips_claims_of_others_and_counts_the_rest() -> None:
    make_pool()
    claims = [claim(who="cleo"), claim(who="cleo"), claim(who="somebody")]
    answer = post(
        browser_of(person("cleo", "claimant")),
        "/claims/release/",
        claim=[str(c.id) for c in claims],
        reason="done",
    )
    assert answer.status_code == 204
    assert "2 claims are released" in answer["HX-Trigger"]
    assert [view_claim(c.id).state for c in claims] == ["ended", "ended", "bound"]


def test_waiting_claims_are_cancelled_and_prioritised_together() -> None:
    make_pool(members=1, slots=1)
    claim()
    first, second = claim(), claim()
    client = browser_of(chief())
    assert (
        post(client, "/claims/prioritise/", claim=[str(second.id)], priority="20").status_code
        == 204
    )
    assert view_claim(second.id).priority == 20
    assert (
        post(
            client, "/claims/cancel/", claim=[str(first.id), str(second.id)], reason="not needed"
        ).status_code
        == 204
    )
    assert {view_claim(c.id).outcome for c in (first, second)} == {"cancelled"}


def test_a_waiting_claim_shows_its_reason_and_what_would_start_it() -> None:
    make_pool(members=1, slots=1)
    claim()
    claim(owner="next-one")
    client = browser_of(chief())
    for path in ("/claims/", "/pools/env/?tab=queue"):
        text = get(client, path)
        assert "next-one" in text
        assert "The only slot is taken" in text
    assert "What would start it" in get(
        client, f"/claims/{Claim.objects.get(owner='next-one').pk}/"
    )


def test_a_claim_over_several_pools_is_hidden_from_readers_of_one() -> None:
    """The claim's row names its pools, so readers of one pool see the claim in counts only."""
    make_pool(members=1, slots=1)
    make_pool("secret", members=1, slots=1)
    claim()
    claim(owner="mine")
    claim(pools=["env", "secret"], owner="theirs")
    eve = browser_of(person("eve", "viewer", pool=Pool.objects.get(name="env")))
    for client, is_shown in ((browser_of(chief()), True), (eve, False)):
        for path in ("/claims/", "/pools/env/?tab=queue"):
            text = get(client, path)
            assert "mine" in text
            assert ("theirs" in text) == is_shown
            assert is_shown or "secret" not in text


def test_a_claim_is_created_by_form_for_a_pool_and_for_a_named_slot() -> None:
    make_pool()
    client = browser_of(chief())
    answer = post(client, "/claims/new/", pool="env", owner="branch:login", size="1")
    made = Claim.objects.get(owner="branch:login")
    assert (answer.status_code, answer["HX-Redirect"]) == (204, f"/claims/{made.pk}/")
    assert made.requested_by == "ana"
    slot = slot_of("env-2", 1)
    assert post(client, f"/slots/{slot.pk}/claim/", owner="named").status_code == 204
    slot.refresh_from_db()
    assert slot.claim_id == Claim.objects.get(owner="named").pk
    assert "The slot is no longer free." in get(client, f"/slots/{slot.pk}/claim/", **DIALOG)


def test_a_claim_form_with_faults_answers_422_and_names_them() -> None:
    make_pool()
    answer = post(
        browser_of(chief()),
        "/claims/new/",
        pool="env",
        size="many",
        hold_for="soon",
        selector="zone",
    )
    text = answer.content.decode()
    assert answer.status_code == 422
    assert "zone has no value" in text
    text = post(
        browser_of(person("eve", "admin")), "/claims/new/", pool="env", size="many", hold_for="soon"
    ).content.decode()
    assert "many is not a whole number" in text
    assert "soon is not a length of time" in text


def test_a_token_is_shown_once_and_revoked() -> None:
    make_pool()
    client = browser_of(chief())
    text = client.post(
        "/tokens/", {"name": "ci", "role": "claimant", "pool": "", "lasts": "30"}
    ).content.decode()
    secret = re.search(r'id="secret">(berth_[\w-]+)<', text)
    assert secret is not None
    assert secret[1] not in get(client, "/tokens/")
    token = Token.objects.get()
    assert post(client, f"/tokens/{token.pk}/revoke/").status_code == 204
    token.refresh_from_db()
    assert token.revoked_at is not None
    get(browser_of(person("eve", "admin")), f"/tokens/{token.pk}/revoke/", 404)


def test_sign_in_redirects_only_within_the_site() -> None:
    chief()
    for told, target in (
        ("/claims/", "/claims/"),
        ("https://evil.example/", "/"),
        ("//evil.example", "/"),
    ):
        answer = Client().post("/login/", {"username": "ana", "password": PASSWORD, "next": told})
        assert (answer.status_code, answer["Location"]) == (302, target)
    wrong = Client().post("/login/", {"username": "ana", "password": "wrong"})
    assert wrong.status_code == 422
    assert Event.objects.filter(verb="sign_in").count() == 3


def test_sign_out_requires_a_post_and_is_an_event() -> None:
    client = browser_of(chief())
    assert client.get("/logout/").status_code == 405
    assert client.post("/logout/").status_code == 302
    assert Event.objects.filter(verb="sign_out", actor="ana").exists()
    assert client.get("/").status_code == 302


def test_the_overview_without_pools_shows_ways_to_start() -> None:
    text = get(browser_of(chief()), "/")
    for word in ("No pools yet", "Start the sample", "New pool", "curl", "PostgreSQL"):
        assert word in text
    text = get(browser_of(person("vera", "viewer")), "/")
    assert off(text, "Start the sample") == "This needs the role admin in all pools."


def test_the_attention_list_always_shows_its_five_entries() -> None:
    pool = make_pool()
    client = browser_of(chief())
    quiet = get(client, "/")
    places = re.findall(
        r'class="st (\w+)"',
        quiet[quiet.index('class="attn"') : quiet.index("</ul>", quiet.index('class="attn"'))],
    )
    assert places == ["apply_pending", "lost", "error", "drift", "frozen"]
    pause_pool(
        pool_id=pool.pk, until=timezone.now() + timedelta(hours=1), reason="licence server moves"
    )
    assert "licence server moves" in get(client, "/")


def test_the_events_page_at_a_moment_shows_the_holder_of_a_slot() -> None:
    make_pool(members=1, slots=1)
    held = claim(owner="branch:login")
    at = Event.objects.latest("id").at.isoformat()
    client = browser_of(chief())
    text = html_of(client.get("/events/", {"at": "now", "held": "env-1 slot 0"}))
    assert "The page is not updated" in text
    assert f'/claims/{held.id}/">{held.id}</a> branch:login' in text
    assert "There is no slot 7" in client.get("/events/", {"held": "env-1 slot 7"}).content.decode()
    assert (
        "Name a member and a slot" in client.get("/events/", {"held": "nonsense"}).content.decode()
    )
    assert client.get("/events/", {"at": at}).status_code == 200
    for odd in ("never", "99999-01-01", "2026-13-45T00:00:00Z", "1' OR 1=1"):
        assert client.get("/events/", {"at": odd}).status_code == 200


@pytest.mark.parametrize(
    "typed",
    [
        "pool:none",
        "state:odd",
        "member:x pool:env",
        "owner:%",
        "123456789012345678901",
        "'; --",
        "kind:",
        "state:waiting x",
    ],
)
def test_malformed_queries_answer_200_on_every_search_page(typed: str) -> None:
    make_pool()
    claim()
    client = browser_of(chief())
    assert client.get("/claims/", {"q": typed}).status_code == 200
    assert client.get("/events/", {"q": typed}).status_code == 200
    assert client.get("/search/", {"q": typed}).status_code == 200


def test_names_are_escaped_on_every_page() -> None:
    make_pool(description="<script>alert(1)</script>", group="<b>x</b>")
    bad = '"><script>alert(2)</script>'
    held = claim(owner=bad)
    client = browser_of(chief())
    post(client, f"/members/{member('env-1').pk}/cordon/", reason=bad)
    for path in (
        *PAGES,
        "/claims/?q=",
        f"/claims/{held.id}/",
        "/events/?held=<script>",
        "/search/?q=<script>",
        f"/claims/{held.id}/release/",
    ):
        text = client.get(path).content.decode()
        assert "<script>alert" not in text, path
        assert "<b>x</b>" not in text, path


def test_the_palette_lists_only_actions_of_the_role() -> None:
    make_pool()
    held = claim(owner="branch:login")
    text = get(browser_of(chief()), "/search/?q=env", **{"X-Part": "palette"})
    assert "Pool env" in text and "Member env-1" in text and "Pause…" in text
    assert str(held.id) in get(browser_of(User.objects.get(username="ana")), "/search/?q=login")
    text = get(browser_of(person("vera", "viewer")), "/search/?q=env")
    assert "Pool env" in text and "Pause…" not in text


def test_an_unknown_page_has_a_styled_404() -> None:
    text = get(browser_of(chief()), "/pools/nope/", 404)
    assert "There is no pool nope." in text and "berth.css" in text
    text = get(Client(), "/nothing/at/all/", 404)
    assert "Page not found." in text
