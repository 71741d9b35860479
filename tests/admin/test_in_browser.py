"""The admin works in a real browser under its content policy, with no error in the console."""

from typing import Any

from django.contrib.auth.models import User

from pools.lifecycle.services import create_pool
from pools.models import Member


def test_a_member_is_cordoned_in_the_admin(page: Any, sign_in: Any) -> None:
    boss = User.objects.create_superuser("boss")
    create_pool({"kind": "Pool", "name": "envs", "slots": 2, "members": {"list": [{"name": "a"}]}})
    member = Member.objects.get()
    sign_in(page, boss)
    for path in (
        "/admin/",
        "/admin/kernel/event/",
        "/admin/claims/claim/",
        "/admin/pools/grant/add/",
    ):
        assert page.goto(path).status == 200
    page.goto(f"/admin/pools/member/{member.pk}/cordon/")
    page.get_by_label("Reason").fill("new disk")
    page.get_by_role("button", name="Cordon").click()
    page.wait_for_url(f"**/admin/pools/member/{member.pk}/change/")
    page.get_by_text("Cordon: done for 1 of 1.").wait_for()
    assert Member.objects.get().is_cordoned
