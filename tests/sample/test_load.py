"""The sample is loaded and removed as a whole."""

import os
import shutil
import socket
import stat
from collections.abc import Iterator
from contextlib import contextmanager
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
from project.sample import free_ports
from project.sample import services as sample
from project.sample.scenario import ARCADE, ROOMS
from slots.models import Slot
from tests.dashboard.helpers import chief
from tests.dashboard.plain_browser import browser_of

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture(autouse=True)
def home(tmp_path: Path, settings: Any) -> Iterator[Path]:
    settings.BERTH_HOME = tmp_path
    yield tmp_path
    shutil.rmtree(sample.site_folder(), ignore_errors=True)


def test_loading_makes_five_pools_and_a_token_limited_to_them(home: Path) -> None:
    sample.load_sample()
    pools = sample.list_pools_of_sample()
    names = ["arcade", "device-ports", "env-test", "harbour", "runners"]
    assert [pool.name for pool in pools] == names
    # The worker creates the member of the arcade, the scaler those of harbour and runners.
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
    assert "pool env-test exists already" in sample.load_sample().lines
    assert Pool.objects.count() == 5
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
    assert set(roles) == {"arcade", "env-test", "device-ports", "runners"}
    assert not any(roles.values())


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
    assert len(said) == 5
    assert not list(home.glob("sample-*token"))
    with pytest.raises(BadToken):
        identify_token(secret)
    assert Claim.objects.get(pk=claim.id).state == "ended"
    assert not Slot.objects.filter(is_open=True).exists()
    assert set(Pool.objects.values_list("state", flat=True)) <= {"deleting", "gone"}


def test_removing_an_absent_sample_says_so() -> None:
    assert sample.remove_sample() == ["no sample is loaded"]


def ports_of_arcade() -> tuple[int, int]:
    """The first listener and the first room."""
    spec = spec_of(Pool.objects.get(name=ARCADE))
    assert spec.layout.ports is not None and spec.backends is not None
    return spec.layout.ports.first, spec.backends.ports[0]


def test_the_rooms_of_the_arcade_have_the_ports_behind_its_listeners() -> None:
    assert sample.load_sample().left_out == ""
    first, room = ports_of_arcade()
    assert room == first + ROOMS
    assert first >= free_ports.FIRST and room + ROOMS - 1 <= free_ports.LAST
    assert spec_of(Pool.objects.get(name=ARCADE)).backends.networks == ("127.0.0.1/32",)


def test_quota_of_the_arcade_is_the_number_of_its_ports() -> None:
    """Two numbers beside each other puzzle readers of the tab Ports: 17/24, and 15 of 20 ports."""
    sample.load_sample()
    ports = spec_of(Pool.objects.get(name=ARCADE)).layout.ports
    assert ports is not None and ports.quota == 2 * ROOMS  # in TCP and in UDP


@contextmanager
def taken(port: int, kind: socket.SocketKind) -> Iterator[None]:
    with socket.socket(socket.AF_INET, kind) as other:
        other.bind(("127.0.0.1", port))
        if kind == socket.SOCK_STREAM:
            other.listen()
        yield


@pytest.mark.parametrize("kind", [socket.SOCK_STREAM, socket.SOCK_DGRAM], ids=["tcp", "udp"])
@pytest.mark.parametrize("offset", [0, 2 * ROOMS - 1], ids=["first listener", "last room"])
def test_a_port_of_another_program_is_not_chosen(kind: socket.SocketKind, offset: int) -> None:
    first = free_ports.find_ports()
    with taken(first + offset, kind):
        assert free_ports.find_ports() != first
    assert free_ports.find_ports() == first


def test_without_free_ports_the_sample_is_loaded_without_its_arcade(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    first = free_ports.find_ports()
    monkeypatch.setattr(free_ports, "FIRST", first)
    monkeypatch.setattr(free_ports, "LAST", first + 2 * ROOMS - 1)
    with taken(first + 5, socket.SOCK_STREAM):
        loaded = sample.load_sample()
    assert loaded.left_out == (
        f"The pool arcade is left out: No 20 consecutive ports between {first} and "
        f"{first + 2 * ROOMS - 1} are free. Stop a program that uses some of them, then load the "
        "sample again."
    )
    assert loaded.left_out in loaded.lines
    assert len(sample.list_pools_of_sample()) == 4
    assert sample.load_sample().left_out == ""
    assert ports_of_arcade()[0] == first


@pytest.mark.parametrize(
    ("bind", "why"),
    [
        (["nonsense"], "nonsense is neither an address nor a network"),
        (["203.0.113.7"], "203.0.113.7 is not an address of this machine"),
        (["2001:db8::/64"], "2001:db8::1 is not an address of this machine"),
    ],
)
def test_a_setting_that_no_forwarder_can_follow_leaves_the_arcade_out(
    settings: Any, bind: list[str], why: str
) -> None:
    settings.BERTH_FORWARDER_BIND = bind
    assert why in sample.load_sample().left_out
    assert len(sample.list_pools_of_sample()) == 4


def test_in_a_cluster_the_arcade_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.0.0.1")
    assert "Berth runs in a cluster" in sample.load_sample().left_out


def test_without_ipv6_the_arcade_has_ports_of_ipv4(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(free_ports, "is_here", lambda address: ":" not in address)
    assert free_ports.list_addresses() == ["127.0.0.1"]
    assert sample.load_sample().left_out == ""


def test_the_page_says_which_pool_is_left_out(settings: Any) -> None:
    settings.BERTH_FORWARDER_BIND = ["nonsense"]
    answer = browser_of(chief()).post("/sample/load/", follow=True)
    assert answer.status_code == 200
    assert "The pool arcade is left out: BERTH_FORWARDER_BIND: nonsense" in answer.text


def test_a_state_folder_that_cannot_be_written_is_an_error_with_a_way_out(
    home: Path, settings: Any
) -> None:
    (home / "file").touch()
    settings.BERTH_HOME = home / "file"
    answer = browser_of(chief()).post("/sample/load/")
    assert answer.status_code == 409
    assert "The sample cannot be written to" in answer.text
