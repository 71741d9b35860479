"""An object without a member is adopted or deleted, never both."""

from dataclasses import asdict
from typing import Any

import pytest

from pools.models import Member, Pool
from project.kernel.errors import BerthError
from slots.sync.stray_orders import adopt_stray, delete_stray, read_orders
from slots.sync.strays import Stray
from tests.claims.parallel_processes import together
from tests.dashboard.helpers import chief
from tests.dashboard.plain_browser import browser_of
from tests.pools.providers.fake_providers import ALL, fresh
from tests.slots.sync.test_stray_orders import make_yard

pytestmark = pytest.mark.django_db(transaction=True)
STRAYS = 6


@pytest.fixture
def yard(settings: Any) -> tuple[Pool, list[int]]:
    """With objects of members that this database does not know."""
    settings.BERTH_PROVIDERS = ALL
    fresh()
    pool = make_yard(members={"max": 50, "list": ["a"]})
    first = Member.objects.latest("pk").pk + 1000
    ids = [first + n for n in range(STRAYS)]
    since = "2026-11-01T00:00:00+00:00"
    strays = [asdict(Stray(f"thing-{each}", False, since, each)) for each in ids]
    Pool.objects.filter(pk=pool.pk).update(strays=strays)
    return pool, ids


def attempt(order: Any, pool: Pool, member_id: int) -> bool:
    try:
        order(pool_id=pool.pk, member_id=member_id, reason="a race")
    except BerthError:
        return False
    return True


def test_race_of_adoption_and_deletion_has_one_winner(yard: tuple[Pool, list[int]]) -> None:
    pool, ids = yard
    adopted, deleted = together(
        lambda _: [attempt(adopt_stray, pool, each) for each in ids],
        lambda _: [attempt(delete_stray, pool, each) for each in ids],
    )
    assert [one != other for one, other in zip(adopted, deleted, strict=True)] == [True] * STRAYS
    pool.refresh_from_db()
    members = set(Member.objects.filter(pk__in=ids).values_list("pk", flat=True))
    assert read_orders(pool).keys() | members == set(ids)
    assert not read_orders(pool).keys() & members


def test_api_deletes_only_with_the_name_of_the_object(yard: tuple[Pool, list[int]]) -> None:
    ids = yard[1]
    client = browser_of(chief())
    path = f"/api/v1/pools/yard/strays/{ids[0]}/delete/"
    body = {"reason": "unused", "confirm": "thing-of-another"}
    wrong = client.post(path, body, content_type="application/json")
    assert wrong.status_code == 400
    assert "Type thing-" in wrong.content.decode() and '"confirm"' in wrong.content.decode()
    body["confirm"] = f"thing-{ids[0]}"
    done = client.post(path, body, content_type="application/json").json()
    (found,) = [each for each in done["findings"] if each["stray_id"] == ids[0]]
    assert found["repairs"] == ["keep"]
    adopted = client.post(
        f"/api/v1/pools/yard/strays/{ids[1]}/adopt/", {"reason": "mine"},
        content_type="application/json",
    )  # fmt: skip
    assert adopted.status_code == 200
    assert ids[1] not in [each["stray_id"] for each in adopted.json()["findings"]]
