"""The wait reason of a claim in a scaled pool and what would start it."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.utils import timezone

from claims.allocation.requests.resolve import forget_routes
from claims.allocation.wait_reason import forget_explanations
from claims.scaling import orders
from claims.scaling.scaler import scale_pools
from pools.models import Pool
from tests.claims.helpers import again, ask, serve
from tests.claims.scaling.test_scaler import config, make, names, scale, update_pool
from tests.pools.providers.fake_providers import ALL, fresh

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("tables")]
WHY = "looking at the bill"


@pytest.fixture(autouse=True)
def _worlds(settings: Any) -> Iterator[None]:
    settings.BERTH_PROVIDERS = ALL
    fresh()
    forget_routes()
    forget_explanations()
    yield
    forget_routes()


def later() -> Any:
    return timezone.now() + timedelta(hours=2)


def wait(**body: Any) -> Any:
    serve()
    found = again(ask(**body), explain=True).wait
    assert found is not None
    return found


def fill(pool: Pool, members: int = 1) -> None:
    for _ in range(2 * members):
        ask()
    serve()
    for _ in range(members):
        scale(pool)
        serve()
    assert len(names(pool)) == members


def test_a_wait_at_the_maximum_names_the_next_maximum() -> None:
    fill(make(high=1))
    assert wait().unblock[:2] == ["The maximum of members goes from 1 to 2", "One of 2 claims ends"]


def test_a_wait_below_the_maximum_names_a_member_by_the_scaler() -> None:
    fill(make(high=2))
    assert wait().unblock[0] == "One more member, created by the scaler"


def test_a_wait_at_a_scheduled_maximum_names_its_window() -> None:
    now = datetime.now(UTC)
    window = {
        "from": f"{now - timedelta(hours=1):%H:%M}",
        "to": f"{now + timedelta(hours=2):%H:%M}",
        "min": 0,
        "max": 1,
    }
    fill(make(high=4, schedule=[window]))
    assert (
        wait()
        .unblock[0]
        .startswith(
            f"The maximum of members ({window['from']}–{window['to']} UTC) goes from 1 to 2"
        )
    )


def test_a_wait_under_a_pin_or_pause_names_it() -> None:
    pool = make(high=4)
    fill(pool)
    orders.pin_pool(pool_id=pool.pk, count=1, until=later(), reason=WHY)
    assert wait().unblock[0] == f"The pin to 1 member is removed: {WHY}"
    orders.pause_scaling(pool_id=pool.pk, until=later(), reason="ana")
    assert wait().unblock[0] == "The scaler is resumed (paused: ana)"


def test_a_wait_without_members_names_the_scaler_or_its_pause() -> None:
    make()
    assert wait().unblock == ["One more member, created by the scaler"]
    pool = Pool.objects.get()
    orders.pause_scaling(pool_id=pool.pk, until=later(), reason="ana")
    assert wait().unblock == ["The scaler is resumed (paused: ana)"]


def test_a_wait_in_a_freeze_names_its_end_and_its_lift() -> None:
    now = datetime.now(UTC)
    window = {
        "from": f"{now - timedelta(hours=1):%H:%M}",
        "to": f"{now + timedelta(hours=2):%H:%M}",
        "name": "release",
    }
    pool = make(low=0)
    fill(pool)
    update_pool("lab", config(freeze=[window]))
    scale_pools([pool.pk])
    found = wait()
    assert found.text.startswith("Pool lab is frozen until ")
    assert "release: " in found.text
    assert [way.split(",")[0] for way in found.unblock] == [
        "The freeze ends",
        "The freeze is lifted",
    ]


# Labels -------------------------------------------------------------------------------------------


def labelled(**more: Any) -> dict[str, Any]:
    found = config(**more)
    return found | {"members": found["members"] | {"labels": {"zone": "a", "size": "large"}}}


def test_a_claim_with_labels_of_new_members_gets_a_new_member() -> None:
    pool = make()
    update_pool("lab", labelled())
    claim = ask(selector={"zone": "a"})
    serve()
    assert again(claim, explain=True).wait.unblock == ["One more member, created by the scaler"]
    assert scale(pool).delta == 1
    serve()
    assert again(claim).slots[0].member == "lab-1"


def test_free_slots_without_the_labels_do_not_count_as_capacity() -> None:
    pool = make(low=1)
    scale(pool)
    update_pool("lab", labelled(low=1) | {"roll": "manual"})
    claim = ask(selector={"size": "large"})
    serve()
    assert again(claim).is_waiting
    assert scale(pool).delta == 1
    serve()
    assert again(claim).slots[0].member == "lab-2"
    other = ask(selector={"size": "large"})
    serve()
    assert (again(other).slots[0].member, scale(pool).delta) == ("lab-2", 0), (
        "what is free there serves the next"
    )


def test_a_claim_with_labels_that_no_new_member_has_adds_no_member() -> None:
    pool = make()
    update_pool("lab", labelled())
    found = wait(selector={"zone": "b"})
    assert "with zone=b is added" in found.unblock[0]
    assert scale(pool).delta == 0
