"""DELETE of a member: schema and call both require a reason."""

from django.test import Client

from pools.models import Member
from tests.api.conftest import Callers
from tests.api.helpers import make_pool


def test_delete_schema_requires_a_reason(client: Client) -> None:
    paths = client.get("/api/schema/?format=json").json()["paths"]
    reason = next(
        one
        for one in paths["/api/v1/members/{member_id}/"]["delete"]["parameters"]
        if one["name"] == "reason"
    )
    assert (reason["required"], reason["schema"]["minLength"]) == (True, 1)


def test_member_is_not_removed_without_a_reason(caller: Callers) -> None:
    make_pool()
    admin, member = caller("admin"), Member.objects.get(name="a")
    answer = admin("DELETE", f"members/{member.pk}/")
    assert (answer.status, [error["field"] for error in answer.body["errors"]]) == (400, ["reason"])
    assert Member.objects.get(pk=member.pk).is_leaving is False
    assert admin("DELETE", f"members/{member.pk}/?reason=sold").status == 200
