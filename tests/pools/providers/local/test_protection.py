"""Local agents start only where tasks cannot read Berth's secrets, or where only one person can
start tasks.
"""

import itertools
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from django.contrib.auth.models import Group, User
from django.core.management import call_command
from django.test import Client

from pools.access.claimants import list_claimants
from pools.admin import GrantForm
from pools.lifecycle.services import create_pool
from pools.models import Pool
from pools.providers.local import protection, provider
from pools.providers.local.protection import Protection, find_protection
from pools.providers.local.provider import LocalProvider
from pools.roles.services import create_grant
from project.kernel.embedded import detached
from project.kernel.errors import Refused
from project.kernel.outbox.operations import ProviderError
from project.sample.services import ROLES
from slots.agent_build import build_agent
from slots.doctor.checks import describe_protection, find_unprotected
from tests.dashboard.helpers import chief, person
from tests.pools.providers.local.helpers import POOL, folder, is_up, member, own_home
from tests.slots.agent import ordinary_user as agent_ordinary_user
from tests.waiting import wait_until

NO_NAMESPACES = "the kernel says no"


@pytest.fixture(autouse=True)
def home(settings: Any, tmp_path: Path) -> Iterator[Path]:
    settings.BERTH_IS_LOOPBACK = True
    with own_home(settings, tmp_path) as home:
        yield home


@pytest.fixture
def ordinary_user(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """Berth runs as an ordinary user, and its kernel gives tasks no namespaces."""
    monkeypatch.setattr(protection, "is_root", lambda: False)
    monkeypatch.setattr(protection, "probe", lambda home: NO_NAMESPACES)
    return monkeypatch


def with_namespaces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(protection, "probe", lambda home: "")


def pool_with(*claimants: str) -> Any:
    return replace(POOL, claimants=claimants)


def see(pool: Any) -> Any:
    (seen,) = LocalProvider().look(replace(pool, members=(member("ready"),))).seen
    return seen


# -- which protection there is ---------------------------------------------------------------------


def test_root_gives_tasks_users_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(protection, "is_root", lambda: True)
    assert find_protection() == Protection("users")


def test_ordinary_user_runs_tasks_in_namespaces_where_allowed(
    ordinary_user: pytest.MonkeyPatch, settings: Any
) -> None:
    assert find_protection() == Protection("none", NO_NAMESPACES)
    with_namespaces(ordinary_user)
    assert find_protection() == Protection("namespaces")
    settings.BERTH_TRUST_CLAIMANTS = True
    assert find_protection() == Protection("none", is_trusted=True)


def test_namespace_support_is_detected_by_trying() -> None:
    with agent_ordinary_user.own_folder() as place:
        (place / "agent.pyz").write_bytes(build_agent().data)
        code = (
            "import runpy, sys; sys.path.insert(0, sys.argv.pop(1)); "
            "runpy.run_module('berth_agent.processes.namespaces', run_name='__main__')"
        )
        command = [agent_ordinary_user.python(), "-c", code, str(place / "agent.pyz"), str(place)]
        asked = subprocess.run(
            command,
            cwd="/",
            capture_output=True,
            text=True,
            timeout=60,
            check=True,
            **agent_ordinary_user.options(),
        )
        assert (asked.stdout == "") == agent_ordinary_user.has_namespaces(), asked.stdout


# -- what follows for agents -----------------------------------------------------------------------


def test_without_protection_an_agent_starts_for_one_person_on_loopback(
    ordinary_user: pytest.MonkeyPatch,
) -> None:
    LocalProvider().sync(pool_with("admin"), member())
    assert wait_until(is_up)
    assert "--isolation" not in Path(f"/proc/{is_up()}/cmdline").read_text()


def test_without_protection_no_agent_starts_for_several_people(
    ordinary_user: pytest.MonkeyPatch, settings: Any
) -> None:
    with pytest.raises(
        ProviderError, match="2 people may start tasks in this pool.*BERTH_TRUST_CLAIMANTS"
    ):
        LocalProvider().sync(pool_with("admin", "ana"), member())
    assert detached.read(folder()) is None
    settings.BERTH_TRUST_CLAIMANTS = True
    LocalProvider().sync(pool_with("admin", "ana"), member())
    assert wait_until(is_up)


def test_without_protection_no_agent_starts_beyond_loopback(
    ordinary_user: pytest.MonkeyPatch, settings: Any
) -> None:
    settings.BERTH_IS_LOOPBACK = False
    with pytest.raises(ProviderError, match="more than loopback"):
        LocalProvider().sync(pool_with("admin"), member())


def test_agent_ends_when_a_second_person_may_start_tasks(
    ordinary_user: pytest.MonkeyPatch,
) -> None:
    LocalProvider().sync(pool_with("admin"), member())
    wait_until(is_up)
    assert see(pool_with("admin")).is_ready
    seen = see(pool_with("admin", "ana"))
    assert not seen.is_ready and "2 people may start tasks" in seen.why
    wait_until(lambda: not is_up(), "it was not asked to end")


def test_agent_with_namespaces_hides_the_state_folder(
    ordinary_user: pytest.MonkeyPatch, settings: Any, home: Path
) -> None:
    with_namespaces(ordinary_user)
    settings.BERTH_TASK_FOLDERS = [str(home.parent / "shared")]
    ordinary_user.setenv("BERTH_FILES", "/srv/berth-files")
    LocalProvider().sync(pool_with("admin", "ana"), member())
    wait_until(is_up)
    words = Path(f"/proc/{is_up()}/cmdline").read_text().split("\0")
    pairs = list(itertools.pairwise(words))
    assert ("--isolation", "namespaces") in pairs
    assert {path for name, path in pairs if name == "--hide"} >= {str(home), "/srv/berth-files"}
    assert {path for name, path in pairs if name == "--writable"} == {
        str(home / provider.SHARED),
        str(home.parent / "shared"),
    }
    assert see(pool_with("admin", "ana")).is_ready


@pytest.mark.parametrize("host", ["/srv/sockets", ""])
def test_sockets_of_database_and_valkey_are_hidden_from_tasks(
    host: str, monkeypatch: pytest.MonkeyPatch, settings: Any
) -> None:
    """PostgreSQL may admit all processes of Berth's user (peer), also tasks in namespaces."""
    monkeypatch.setitem(settings.DATABASES["default"], "HOST", host)
    settings.REDIS_URL = "unix:///srv/valkey/valkey.sock?db=1"
    pairs = list(itertools.pairwise(provider.isolation_options()))
    assert {path for name, path in pairs if name == "--hide"} >= {
        host or "/run/postgresql",
        "/srv/valkey/valkey.sock",
    }


def test_database_over_the_network_hides_only_home_and_env_file(
    monkeypatch: pytest.MonkeyPatch, settings: Any, home: Path
) -> None:
    for name in provider.HIDDEN:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setitem(settings.DATABASES["default"], "HOST", "127.0.0.1")
    settings.REDIS_URL = "redis://127.0.0.1:6379/0"
    pairs = list(itertools.pairwise(provider.isolation_options()))
    assert {path for name, path in pairs if name == "--hide"} == {
        str(home),
        str(settings.BASE_DIR / ".env"),
    }


def test_agent_started_without_protection_is_asked_to_end(
    ordinary_user: pytest.MonkeyPatch,
) -> None:
    LocalProvider().sync(pool_with("admin"), member())
    wait_until(is_up)
    with_namespaces(ordinary_user)
    assert "without the protection" in see(pool_with("admin")).why
    wait_until(lambda: not is_up(), "it was not asked to end")


def test_task_folders_inside_the_state_folder_are_refused(
    ordinary_user: pytest.MonkeyPatch, settings: Any, home: Path
) -> None:
    with_namespaces(ordinary_user)
    for place in (str(home), str(home / "postgres"), "relative"):
        settings.BERTH_TASK_FOLDERS = [place]
        with pytest.raises(ProviderError, match="BERTH_TASK_FOLDERS names"):
            LocalProvider().sync(pool_with("admin"), member())


# -- people who may start tasks --------------------------------------------------------------------


@pytest.fixture
def pool(db: None) -> Pool:
    return create_pool({"name": "lab", "provider": "local", "members": {"max": 3}})


def test_direct_and_group_roles_count_as_people_who_start_tasks(pool: Pool) -> None:
    other = create_pool({"name": "other", "slots": 1})
    chief("root")
    person("ana", "claimant", pool=pool)
    person("ben-of-all", "operator")
    person("viewer", "viewer", "approver", pool=pool)
    person("elsewhere", "admin", pool=other)
    User.objects.filter(pk=person("gone", "claimant", pool=pool).pk).update(is_active=False)
    group = Group.objects.create(name="team")
    person("in-group").groups.add(group)
    create_grant(role="claimant", group=group, pool=pool)
    assert list_claimants(pool.pk) == ["root", "ana", "ben-of-all", "in-group"]


def test_sample_users_count_as_people_only_if_they_can_sign_in(pool: Pool, settings: Any) -> None:
    assert set(settings.BERTH_PROGRAM_USERS) == set(ROLES)
    user = person("sample", "claimant", pool=pool)
    assert list_claimants(pool.pk) == ["sample"]
    user.set_unusable_password()
    user.save()
    assert list_claimants(pool.pk) == []


def test_second_claimant_is_refused_without_protection(
    pool: Pool, ordinary_user: pytest.MonkeyPatch, settings: Any
) -> None:
    chief("root")
    ana, team = person("ana"), Group.objects.create(name="team")
    other = create_pool({"name": "other", "slots": 1})
    create_grant(role="viewer", user=ana)
    create_grant(role="claimant", user=ana, pool=other)
    create_grant(role="claimant", group=team, pool=pool)  # the group is still empty
    person("ben").groups.add(team)
    for given in ({"user": ana, "pool": pool}, {"user": ana}):
        with pytest.raises(Refused, match="people may start tasks") as refused:
            create_grant(role="claimant", **given)
        assert (refused.value.code, refused.value.fields[0].field) == ("tasks_unprotected", "user")
        assert "BERTH_TRUST_CLAIMANTS" in refused.value.way_out
    form = GrantForm({"user": ana.pk, "pool": pool.pk, "role": "operator", "reason": "x"})
    assert not form.is_valid() and "BERTH_TRUST_CLAIMANTS" in str(form.errors)
    assert [finding.subject for finding in find_unprotected()] == ["pool lab"], (
        "the group has got a person since"
    )
    settings.BERTH_TRUST_CLAIMANTS = True
    create_grant(role="claimant", user=ana, pool=pool)


def test_namespaces_allow_roles_for_several_people(
    pool: Pool, ordinary_user: pytest.MonkeyPatch
) -> None:
    with_namespaces(ordinary_user)
    chief("root")
    create_grant(role="claimant", user=person("ana"), pool=pool)
    assert not list(find_unprotected())


# -- what people are told --------------------------------------------------------------------------


def test_pool_and_doctor_name_the_active_protection(
    pool: Pool, ordinary_user: pytest.MonkeyPatch, settings: Any
) -> None:
    client = Client()
    client.force_login(chief("root"))

    def page() -> str:
        return client.get("/pools/lab/").content.decode()

    assert (
        "Tasks are not isolated." in page()
        and NO_NAMESPACES in page()
        and "Only one person can start tasks" in page()
    )
    assert NO_NAMESPACES in describe_protection()
    settings.BERTH_TRUST_CLAIMANTS = True
    assert (
        "every claimant is trusted" in page()
        and "every claimant is trusted" in describe_protection()
    )
    settings.BERTH_TRUST_CLAIMANTS = False
    with_namespaces(ordinary_user)
    assert "namespaces of its own" in page() and "not isolated" not in page()
    told = StringIO()
    call_command("doctor", "I41", stdout=told)
    assert "Tasks on this machine: Each task runs in namespaces of its own" in told.getvalue()
    ordinary_user.setattr(protection, "is_root", lambda: True)
    assert (
        "a system user of its own" in page() and "a system user of its own" in describe_protection()
    )
    create_pool({"name": "other", "slots": 1})
    assert "Each task runs" not in client.get("/pools/other/").content.decode()
