"""The sample is loaded and removed as a whole."""

import os
import shutil
import stat
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from django.contrib.auth.models import User

from claims.allocation.create import create_claim
from claims.allocation.requests.claim_request import ClaimRequest
from claims.models import Claim
from pools.access.permissions import ADMIN, CLAIMANT
from pools.access.tokens import BadToken, identify_token
from pools.lifecycle.selectors import spec_of
from pools.lifecycle.services import create_pool
from pools.models import Member, Pool, Token
from pools.scaling.schedule import find_open, list_occurrences
from project.kernel.errors import Conflict
from project.sample import services as sample
from slots.models import Slot

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture(autouse=True)
def home(tmp_path: Path, settings: Any) -> Iterator[Path]:
    settings.BERTH_HOME = tmp_path
    yield tmp_path
    shutil.rmtree(sample.site_folder(), ignore_errors=True)


def test_loading_makes_four_pools_and_a_token_limited_to_them(home: Path) -> None:
    sample.load_sample()
    pools = sample.list_pools_of_sample()
    assert [pool.name for pool in pools] == ["device-ports", "env-test", "harbour", "runners"]
    # The scaler creates the members of the other two.
    assert Slot.objects.filter(pool__in=pools, is_open=True).count() == 20 + 64
    assert not Member.objects.filter(pool__name__in=("harbour", "runners")).exists()
    file = home / "sample-token"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    identity = identify_token(file.read_text().strip())
    assert {
        pool: CLAIMANT in identity.roles_in(pool) for pool in (p.pk for p in pools)
    } == dict.fromkeys((p.pk for p in pools), True)
    assert not identity.roles_in(None)


def test_loading_twice_replaces_the_token_and_keeps_the_pools(home: Path) -> None:
    sample.load_sample()
    first = (home / "sample-token").read_text().strip()
    assert "pool env-test exists already" in sample.load_sample()
    assert Pool.objects.count() == 4
    assert Token.objects.filter(revoked_at__isnull=True).count() == 3
    with pytest.raises(BadToken):
        identify_token(first)


def test_a_pool_that_the_sample_did_not_make_is_left_alone() -> None:
    create_pool({"kind": "Pool", "name": "harbour", "slots": 1})
    with pytest.raises(Conflict):
        sample.load_sample()
    assert Pool.objects.count() == 1
    sample.remove_sample()
    assert Pool.objects.get().state == "active"


def test_ben_may_only_view_and_approve_in_the_pool_with_agents(home: Path) -> None:
    sample.load_sample()
    file = home / "sample-approver-token"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    ben = identify_token(file.read_text().strip())
    roles = {pool.name: ben.roles_in(pool.pk) for pool in sample.list_pools_of_sample()}
    assert roles.pop("harbour") == {"approver", "viewer"}
    assert set(roles) == {"env-test", "device-ports", "runners"} and not any(roles.values())


def test_vera_may_configure_the_runners_only(home: Path) -> None:
    sample.load_sample()
    file = home / "sample-releaser-token"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    vera = identify_token(file.read_text().strip())
    assert ADMIN in vera.roles_in(Pool.objects.get(name="runners").pk)
    assert not any(vera.roles_in(p.pk) for p in Pool.objects.exclude(name="runners"))
    assert not vera.roles_in(None)


@pytest.mark.parametrize("hours", range(0, 7 * 24, 5))
def test_the_freeze_is_ahead_whenever_the_sample_is_loaded(
    monkeypatch: pytest.MonkeyPatch, hours: int
) -> None:
    loaded = datetime(2026, 11, 16, 0, 59, tzinfo=UTC) + timedelta(hours=hours)
    monkeypatch.setattr(sample.timezone, "now", lambda: loaded)
    sample.load_sample()
    monkeypatch.undo()
    scaling = spec_of(Pool.objects.get(name="runners")).scaling
    assert scaling is not None and find_open(scaling.freeze, loaded) is None
    week = list_occurrences(scaling.freeze, loaded, loaded + timedelta(days=7))
    (ahead,) = [freeze.start - loaded for freeze in week]
    assert timedelta(hours=11) < ahead <= timedelta(hours=12)


def test_the_folder_of_pages_comes_and_goes_with_the_sample(home: Path) -> None:
    sample.load_sample()
    pages = Path(spec_of(Pool.objects.get(name="harbour")).task.env["HELLO_TARGET"])
    assert pages.is_dir() and pages.parent == sample.site_folder()
    sample.remove_sample()
    assert not pages.parent.exists()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root runs tasks as others")
def test_the_folder_of_pages_has_mode_0755_under_any_umask(home: Path) -> None:
    before = os.umask(0o077)
    try:
        sample.load_sample()
    finally:
        os.umask(before)
    assert stat.S_IMODE(sample.site_folder().stat().st_mode) == 0o755


def test_a_folder_that_the_sample_did_not_make_is_not_used(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (home / "theirs").mkdir()
    (home / "site").symlink_to(home / "theirs")
    monkeypatch.setattr(sample, "site_folder", lambda: home / "site")
    with pytest.raises(Conflict, match="another user"):
        sample.load_sample()
    assert not Pool.objects.exists()


@pytest.mark.parametrize("name", ["sample", "ben", "vera"])
def test_a_person_with_a_name_of_the_sample_gets_no_token(name: str) -> None:
    User.objects.create_user(name, password="a long password")
    with pytest.raises(Conflict):
        sample.load_sample()
    assert not Pool.objects.exists()
    assert not Token.objects.exists()
    assert sample.remove_sample() == ["no sample is loaded"]
    assert User.objects.get(username=name).has_usable_password()


def test_removing_ends_claims_and_removes_pools_and_tokens(home: Path) -> None:
    sample.load_sample()
    secret = (home / "sample-token").read_text().strip()
    claim = create_claim(
        ClaimRequest(pools=("env-test",), owner="branch:login", requested_by="ana")
    )
    said = sample.remove_sample()
    assert len(said) == 4
    assert not list(home.glob("sample-*token"))
    with pytest.raises(BadToken):
        identify_token(secret)
    assert Claim.objects.get(pk=claim.id).state == "ended"
    assert not Slot.objects.filter(is_open=True).exists()
    assert set(Pool.objects.values_list("state", flat=True)) <= {"deleting", "gone"}


def test_removing_an_absent_sample_says_so() -> None:
    assert sample.remove_sample() == ["no sample is loaded"]
