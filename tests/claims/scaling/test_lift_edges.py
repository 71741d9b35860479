"""Edge cases of lifted freezes: the end of a window, a longer second window, an invalid date."""

from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client
from django.utils import timezone

from claims.allocation import member_limits
from claims.models import Lift
from claims.scaling.orders import lift_freeze
from pools.roles.services import create_grant
from project.kernel.models import Event
from tests.claims.scaling.test_lifts import BEGAN, frozen, minute, window
from tests.claims.scaling.test_scaler import make, scale
from tests.pools.providers.fake_providers import ALL, fresh

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("tables")]


@pytest.fixture(autouse=True)
def _worlds(settings: Any) -> None:
    settings.BERTH_PROVIDERS = ALL
    fresh()
    BEGAN[:] = [timezone.now().replace(second=0, microsecond=0)]


def test_a_lift_that_ends_during_a_step_ends_with_its_window(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Red where lifts are asked for by a later clock than windows: it freezes for one cycle, and
    idle members go.
    """
    pool = make(low=2, freeze=[window(-1, 1)])
    lift_freeze(pool_id=pool.pk, reason="hotfix", starts_at=minute(-1))
    real = member_limits.lifted_starts

    def a_moment_later(pool_id: int, *moment: Any) -> Any:
        between = (moment[0] if moment else timezone.now() - timedelta(milliseconds=1)) + timedelta(
            microseconds=1
        )
        # The window's end, which is over once this statement is answered.
        Lift.objects.update(ends_at=between)
        return real(pool_id, *moment)

    monkeypatch.setattr(member_limits, "lifted_starts", a_moment_later)
    scale(pool)
    pool.refresh_from_db()
    assert (pool.frozen_until, Event.objects.filter(verb="freeze").count()) == (None, 0)


def test_a_second_longer_window_can_be_lifted_while_the_first_is_lifted() -> None:
    pool = make(low=1, freeze=[window(-2, 1), window(-1, 3, "audit")])
    assert frozen(pool)
    lift_freeze(pool_id=pool.pk, reason="hotfix")
    assert not frozen(pool)
    lift_freeze(pool_id=pool.pk, reason="hotfix", starts_at=minute(-1))
    assert Lift.objects.get().ends_at == minute(3)


@pytest.mark.parametrize("starts", ["2026-02-30T00:00:00Z", "2026-01-01T25:00:00Z"])
@pytest.mark.parametrize("what", ["unfreeze", "refreeze"])
def test_an_invalid_date_in_a_lift_dialog_answers_200(what: str, starts: str) -> None:
    pool = make(freeze=[window(2, 4)])
    user = User.objects.create_user("ola")
    create_grant(role="operator", user=user, pool=pool)
    browser = Client()
    browser.force_login(user)
    assert browser.get(f"/pools/lab/scaling/{what}/?starts={starts}").status_code == 200
