"""Addresses of members, as providers report them."""

from dataclasses import replace
from typing import Any

import pytest

from pools.lifecycle.services import create_pool
from pools.models import Member
from project.kernel.outbox.operations import perform_due
from slots.api.schemas import MemberDetailAnswer
from slots.sync.watcher import observe_pool
from tests.pools.providers.fake_providers import ALL, CraneProvider, fresh

pytestmark = pytest.mark.django_db(transaction=True)
NAME = "lb-1.example"


@pytest.fixture(autouse=True)
def _worlds(settings: Any) -> None:
    settings.BERTH_PROVIDERS = ALL
    fresh()


def report(
    monkeypatch: pytest.MonkeyPatch, *, sync: tuple[str, ...], look: tuple[str, ...]
) -> None:
    do_sync, do_look = CraneProvider.sync, CraneProvider.look

    def sync_with(self: CraneProvider, *given: Any) -> Any:
        return replace(do_sync(self, *given), addresses=sync)

    def look_with(self: CraneProvider, *given: Any) -> Any:
        found = do_look(self, *given)
        return replace(found, seen=tuple(replace(each, addresses=look) for each in found.seen))

    monkeypatch.setattr(CraneProvider, "sync", sync_with)
    monkeypatch.setattr(CraneProvider, "look", look_with)


def test_addresses_of_sync_and_look_are_kept_and_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    report(monkeypatch, sync=(NAME,), look=(NAME, "2001:db8::1"))
    pool = create_pool(
        {"name": "yard", "provider": "crane", "slots": 1, "members": {"list": ["a"]}}
    )
    perform_due("crane")
    assert Member.objects.get().addresses == [NAME]
    observe_pool(pool)
    member = Member.objects.get()
    assert MemberDetailAnswer(member).data["addresses"] == [NAME, "2001:db8::1"]
    report(monkeypatch, sync=(), look=())
    observe_pool(pool)
    assert Member.objects.get().addresses == [NAME, "2001:db8::1"], "empty: not known"
