"""Tokens of remote agents: issued by an admin of the pool and shown once, by API, page and
command.
"""

from io import StringIO

import pytest
from django.contrib.auth.models import User
from django.core.management import CommandError, call_command

from pools.access.tokens import create_token
from pools.lifecycle.services import create_pool
from pools.models import Member, Pool
from pools.roles.services import create_grant
from project.dashboard.installation import list_problems
from project.kernel.models import Event
from slots.members.liveness import mark_down
from slots.members.tokens import BadMemberToken, identify_member
from tests.api.conftest import Caller
from tests.dashboard.plain_browser import browser_as

pytestmark = pytest.mark.django_db


@pytest.fixture
def pool() -> Pool:
    create_pool({"name": "plain", "slots": 1, "members": {"list": ["x"]}})
    create_pool({"name": "ours", "provider": "local", "members": {"list": ["l"]}})
    return create_pool({"name": "far", "provider": "agents", "members": {"list": ["a"]}})


def id_of(name: str) -> int:
    return int(Member.objects.get(name=name).pk)


def caller_as(role: str, pool: Pool) -> Caller:
    user = User.objects.create_user(role)
    create_grant(role=role, user=user, pool=pool)
    return Caller(create_token(user=user, name="test")[1])


def test_call_issues_a_token_with_the_lines_that_start_the_agent(pool: Pool) -> None:
    answer = caller_as("admin", pool).post(
        f"members/{id_of('a')}/token/", {"reason": "the new machine"}
    )
    assert answer.status == 201
    assert identify_member(answer.body["token"]).member == "a"
    assert answer.body["agent_url"] == "http://testserver/agent/berth-agent.pyz"
    assert [line.split()[0] for line in answer.body["start"]] == ["python3", "(umask", "python3"]
    assert answer.body["token"] not in answer.body["start"][0] + answer.body["start"][2]
    event = Event.objects.get(verb="issue_token")
    assert event.reason == "the new machine"
    assert answer.body["token"] not in str(event.data)


def test_operator_may_not_issue_a_member_token(pool: Pool) -> None:
    assert caller_as("operator", pool).post(f"members/{id_of('a')}/token/", {}).status == 403


def test_previous_token_stays_valid_unless_ended_explicitly(pool: Pool) -> None:
    caller = caller_as("admin", pool)
    first, second = (
        caller.post(f"members/{id_of('a')}/token/", {}).body["token"] for _ in range(2)
    )
    assert identify_member(first).member_id == identify_member(second).member_id
    third = caller.post(f"members/{id_of('a')}/token/", {"ends_previous": True}).body["token"]
    assert identify_member(third)
    with pytest.raises(BadMemberToken):
        identify_member(second)


def test_member_without_an_agent_has_no_token(pool: Pool) -> None:
    create_grant(role="admin", user=User.objects.create_user("all"))
    caller = Caller(create_token(user=User.objects.get(username="all"), name="t")[1])
    answer = caller.post(f"members/{id_of('x')}/token/", {})
    assert (answer.status, answer.body["code"]) == (409, "no_agents")


def test_page_shows_the_token_once(pool: Pool) -> None:
    browser, path = browser_as("admin", pool), f"/members/{id_of('a')}/token/"
    assert "berthm_" not in browser.get(path).content.decode()
    shown = browser.post(path, {"reason": "new"})
    assert "berthm_" in shown.content.decode()
    assert "no-store" in shown["Cache-Control"]
    assert "berthm_" not in browser.get(path).content.decode()
    assert browser_as("operator", pool).get(path).status_code == 403
    assert browser.get(f"/members/{id_of('x')}/token/").status_code == 404


def test_member_panel_links_to_the_token_dialog(pool: Pool) -> None:
    page = browser_as("admin", pool).get("/pools/far/?member=a").content.decode()
    assert f"/members/{id_of('a')}/token/" in page


def test_person_can_restart_a_local_agent(pool: Pool) -> None:
    browser, path = (
        browser_as("operator", Pool.objects.get(name="ours")),
        f"/members/{id_of('l')}/restart/",
    )
    assert "Restart l" in browser.get(path).content.decode()
    assert browser.post(path, {"reason": "it hangs"}).status_code == 302
    assert Member.objects.get(name="l").incarnation == 2
    answer = browser_as("operator", pool).post(
        f"/members/{id_of('a')}/restart/", {"reason": "it hangs"}
    )
    assert answer.status_code == 409
    assert "Berth does not start this agent" in answer.content.decode()
    assert Member.objects.get(name="a").incarnation == 1


def test_command_prints_only_the_token(pool: Pool) -> None:
    out, err = StringIO(), StringIO()
    call_command("member_token", "far/a", url="https://berth.example.com", stdout=out, stderr=err)
    secret = out.getvalue().strip()
    assert identify_member(secret).member == "a"
    assert (
        "urlretrieve('https://berth.example.com/agent/berth-agent.pyz', 'berth-agent.pyz')"
        in err.getvalue()
    )
    with pytest.raises(CommandError, match="no member z"):
        call_command("member_token", "far/z")
    with pytest.raises(CommandError, match="neither agents nor heartbeats"):
        call_command("member_token", "plain/x")


def test_member_that_gave_up_is_listed_among_the_troubles(pool: Pool) -> None:
    member = Member.objects.get(name="l")
    Member.objects.filter(pk=member.pk).update(restarts=5)
    mark_down(member_id=member.pk, incarnation=1, reason="its process has ended")
    Member.objects.filter(pk=member.pk).update(gave_up_at=member.created_at)
    said = {trouble.lead: trouble.text for trouble in list_problems()}
    assert said["l in ours:"] == "5 starts failed; automatic restarts stopped"


def test_panel_of_a_member_that_gave_up_offers_a_restart(pool: Pool) -> None:
    member = Member.objects.get(name="l")
    mark_down(member_id=member.pk, incarnation=1, reason="its process has ended")
    Member.objects.filter(pk=member.pk).update(restarts=5, gave_up_at=member.created_at)
    page = (
        browser_as("admin", Pool.objects.get(name="ours"))
        .get("/pools/ours/?member=l")
        .content.decode()
    )
    assert "5 starts failed" in page
    assert f"/members/{member.pk}/restart/" in page
