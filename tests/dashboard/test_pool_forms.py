"""Pools and members are created, edited and removed by forms and files."""

import re

import pytest
from django.utils.html import escape

from pools.config.spec import POOL
from pools.models import Member, Pool
from tests.dashboard.helpers import chief, claim, make_pool, member
from tests.dashboard.plain_browser import browser_of, get, post

pytestmark = pytest.mark.django_db


def test_a_pool_form_reports_every_fault_and_creates_no_pool() -> None:
    client = browser_of(chief())
    fields = {
        "name": "No Good",
        "form": "plain",
        "count": "0",
        "members.min": "9",
        "members.max": "3",
        "lease.hold": "soon",
        "drain.limit": "x",
    }
    answer = client.post("/pools/new/", fields)
    text = answer.content.decode()
    assert answer.status_code == 422
    assert len(re.findall(r'<small class="fault"', text)) >= 5
    assert not Pool.objects.exists()


def test_help_and_limits_of_the_form_are_those_of_the_fields() -> None:
    form = get(browser_of(chief()), "/pools/new/")
    for path in ("lease.hold", "approval.needed", "task.memory", "priority.max", "drain.limit"):
        assert escape(POOL.find(path).help) in form, path
    needed = re.search(r'<input type="number" name="approval.needed"[^>]*>', form)
    assert needed and 'min="1"' in needed[0] and 'max="10"' in needed[0]
    assert re.search(r'<input type="text" name="group"[^>]*maxlength="63"', form)


def test_a_pool_is_made_by_form_edited_and_deleted() -> None:
    client = browser_of(chief())
    fields = {
        "name": "lab",
        "form": "ports",
        "ports": "30000-30003",
        "protocols": "tcp udp",
        "members.max": "3",
        "list": "gw-1 site=hall\ngw-2",
    }
    answer = client.post("/pools/new/", fields)
    assert (answer.status_code, answer["Location"]) == (302, "/pools/lab/")
    assert {m.name: m.labels for m in Member.objects.all()} == {
        "gw-1": {"site": "hall"},
        "gw-2": {},
    }
    assert "30000–30003" in get(client, "/pools/lab/")
    answer = client.post(
        "/pools/lab/edit/",
        {"members.max": "8", "placement": "spread", "revision": "1", "reason": "growth"},
    )
    assert answer.status_code == 302, answer.content.decode()
    assert Pool.objects.get().max_members == 8
    # A second person sends the form with the old revision.
    assert client.post("/pools/lab/edit/", {"members.max": "9", "revision": "1"}).status_code == 409
    assert post(client, "/pools/lab/delete/", reason="over", typed="lab").status_code == 204
    assert Pool.objects.get().state in ("deleting", "gone")


def test_a_pool_is_created_from_a_yaml_file() -> None:
    client = browser_of(chief())
    bad = client.post("/pools/new/", {"mode": "file", "file": "name: [unclosed"})
    assert (bad.status_code, b"The file is not valid YAML" in bad.content) == (422, True)
    made = client.post(
        "/pools/new/",
        {
            "mode": "file",
            "file": "kind: Pool\nname: lab\nslots: 2\nmembers: {max: 2, list: [{name: a}]}",
        },
    )
    assert made.status_code == 302
    assert "name: lab" in get(client, "/pools/lab/?tab=policy")


def test_members_are_added_removed_and_kept_by_form() -> None:
    make_pool(members=1)
    client = browser_of(chief())
    assert (
        post(client, "/pools/env/members/add/", names="env-9\nenv-8", labels="zone=eu").status_code
        == 204
    )
    assert member("env-9").labels == {"zone": "eu"}
    wrong = post(client, "/pools/env/members/add/", names="-bad-\nenv-9").content.decode()
    assert "-bad-:" in wrong and "env-9:" in wrong
    claim()
    path = f"/members/{member('env-1').pk}/"
    assert post(client, f"{path}remove/", reason="swap", typed="env-1").status_code == 204
    assert member("env-1").is_leaving
    assert post(client, f"{path}keep/").status_code == 204
    assert not member("env-1").is_leaving


def test_more_than_sixty_members_are_shown_as_a_dense_list() -> None:
    make_pool(members=61)
    text = get(browser_of(chief()), "/pools/env/")
    assert 'role="listbox"' in text
    assert text.count('role="option"') == 61
    assert 'data-cells="cells:env"' in text
