"""Pools with members, held and waiting claims, and a user of every role, for page tests."""

from typing import Any

from django.contrib.auth.models import User
from playwright.sync_api import expect

from claims.allocation.claim_view import ClaimView
from claims.allocation.create import create_claim
from claims.allocation.requests.claim_request import parse_claim
from pools.access.permissions import Identity, load_identity
from pools.lifecycle.services import create_pool
from pools.models import Member, Pool
from pools.roles.services import create_grant
from project.kernel.actor import acting_as
from slots.models import Slot

PASSWORD = "correct horse battery"
# Each of these pages needs a session and opens for a viewer.
PAGES = (
    "/", "/pools/env/", "/pools/env/?tab=queue", "/pools/env/?tab=policy",
    "/pools/env/?tab=events", "/claims/", "/approvals/", "/workspaces/", "/events/", "/tokens/",
)  # fmt: skip


def make_pool(name: str = "env", members: int = 2, slots: Any = 2, **more: Any) -> Pool:
    listed = [{"name": f"{name}-{n}"} for n in range(1, members + 1)]
    return create_pool(
        {"name": name, "slots": slots, "members": {"max": max(members, 4), "list": listed}, **more}
    )


def claim(pool: str = "env", who: str = "ci", **body: Any) -> ClaimView:
    with acting_as(who):
        return create_claim(parse_claim({"pools": [pool], **body}, requested_by=who))


def person(name: str, *roles: str, pool: Pool | None = None) -> User:
    user = User.objects.create_user(name, password=PASSWORD)
    for role in roles:
        create_grant(role=role, user=user, pool=pool)
    return user


def chief(name: str = "ana") -> User:
    """A superuser who can sign in; the name may be that of an earlier approver."""
    user, _ = User.objects.get_or_create(username=name)
    user.is_staff = user.is_superuser = True
    user.set_password(PASSWORD)
    user.save()
    return user


def identity_of(user: User) -> Identity:
    found = load_identity(user.pk)
    assert found is not None
    return found


def member(name: str) -> Member:
    return Member.objects.get(name=name)


def slot_of(name: str, number: int = 0) -> Slot:
    return Slot.objects.get(member__name=name, number=number)


def mark_page(page: Any) -> None:
    """Mark the document, so that `expect_not_reloaded` can tell it from one that was
    loaded later.
    """
    page.locator("html").evaluate("html => { html.isMarked = true; }")


def expect_not_reloaded(page: Any) -> None:
    expect(page.locator("html")).to_have_js_property("isMarked", True)
