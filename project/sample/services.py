"""Loads and removes the sample: its pools, users and tokens.

Pools of the sample have `group: Sample`; other pools are never changed. A second load creates only
missing pools. Each load creates new tokens, because the secrets are only in the files.
"""

import hashlib
import os
import shutil
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple

import yaml
from django.conf import settings
from django.contrib.auth.models import User
from django.db import transaction
from django.utils import timezone

from claims.lifecycle.pool_deletion import delete_pool
from pools.access.tokens import create_token, revoke_token
from pools.lifecycle.selectors import LIVE, spec_of
from pools.lifecycle.services import create_pool
from pools.models import Grant, Pool, Token
from pools.providers.base import has_agents
from pools.roles.services import create_grant
from pools.scaling.schedule import DAYS
from project.kernel.db.locks import SAMPLE, lock_in_transaction
from project.kernel.errors import Conflict
from project.kernel.security.private_files import write_private
from project.sample.free_ports import find_ports
from project.sample.scenario import ARCADE, HARBOUR, ROOMS, RUNNERS
from project.settings import environment as env

POOLS = Path(__file__).with_name("pools.yaml")
GROUP = "Sample"
USER = "sample"
APPROVER = "ben"  # approves or rejects some plans, so that the sample shows whole tasks
RELEASER = "vera"  # changes a label of the runners, so that the sample shows outdated members
TOKEN = "driver"  # noqa: S105  its name
ROLES = {USER: "claimant", APPROVER: "approver", RELEASER: "admin"}
REASON = "the sample"
FREEZE_AHEAD, FREEZE_LENGTH = timedelta(hours=12), timedelta(hours=4)


class LoadedSample(NamedTuple):
    lines: list[str]  # sentences on what was done
    left_out: str  # why a pool is left out; empty: the sample is complete


def load_sample() -> LoadedSample:
    """Load the sample. The file of the token is written last, because it starts the driver. The
    arcade is left out where no forwarder can serve it. Raises Conflict if the sample cannot be
    loaded.
    """
    configs = read_configs()
    left_out = _set_ports(configs)
    if left_out:
        configs = [config for config in configs if config["name"] != ARCADE]
    try:
        lines = _load(configs)
    except OSError as error:
        raise Conflict(
            f"The sample cannot be written to {settings.BERTH_HOME}: {error}.",
            way_out="Make room there, or let Berth write there, then load the sample again.",
        ) from None
    return LoadedSample([*lines, left_out] if left_out else lines, left_out)


def _set_ports(configs: Sequence[dict[str, Any]]) -> str:
    """Choose free ports for a new arcade; why there is none."""
    config = next(config for config in configs if config["name"] == ARCADE)
    if Pool.objects.filter(LIVE, name=ARCADE).exists():
        return ""
    try:
        first = find_ports()
    except Conflict as error:
        return f"The pool {ARCADE} is left out: {error} {error.way_out}".strip()
    config["slots"]["ports"] = f"{first}-{first + ROOMS - 1}"
    config["backends"]["ports"] = f"{first + ROOMS}-{first + 2 * ROOMS - 1}"
    return ""


def _load(configs: Iterable[dict[str, Any]]) -> list[str]:
    with transaction.atomic():
        lock_in_transaction(SAMPLE, "sample")
        lines, pools = [], []
        for config in configs:
            pool, is_new = _make_pool(config)
            pools.append(pool)
            lines.append(f"pool {pool.name} {'is created' if is_new else 'exists already'}")
        secret = _make_token(USER, pools)
        approver = _make_token(APPROVER, [pool for pool in pools if pool.name == HARBOUR])
        releaser = _make_token(RELEASER, [pool for pool in pools if pool.name == RUNNERS])
    write_private(approver_file(), f"{approver}\n")
    write_private(releaser_file(), f"{releaser}\n")
    write_private(token_file(), f"{secret}\n")
    return [*lines, f"the driver's token is in {token_file()}"]


def remove_sample() -> list[str]:
    """Stop the driver, and delete each pool with its claims. Events stay. Returns sentences on what
    was done.
    """
    for file in (token_file(), approver_file(), releaser_file()):
        file.unlink(missing_ok=True)
    with transaction.atomic():
        lock_in_transaction(SAMPLE, "sample")
        users = [
            user for user in map(_find_user, ROLES) if user is not None and not _may_sign_in(user)
        ]
        for token in Token.objects.filter(user__in=users, name=TOKEN, revoked_at__isnull=True):
            revoke_token(token.pk, reason="the sample is removed")
    lines = []
    for pool in list_pools_of_sample():
        if pool.state != "deleting":
            delete_pool(pool_name=pool.name, cascade=True, reason="the sample is removed")
        lines.append(
            f"pool {pool.name} is being deleted, with its "
            f"claims{' and agents' if has_agents(spec_of(pool)) else ''}"
        )
    shutil.rmtree(site_folder(), ignore_errors=True)
    return lines or ["no sample is loaded"]


def is_sample_loaded() -> bool:
    return bool(list_pools_of_sample())


def list_pools_of_sample() -> list[Pool]:
    names = [config["name"] for config in read_configs()]
    return list(Pool.objects.filter(LIVE, name__in=names, spec__group=GROUP).order_by("name"))


def token_file() -> Path:
    return Path(settings.BERTH_HOME) / "sample-token"


def approver_file() -> Path:
    return Path(settings.BERTH_HOME) / "sample-approver-token"


def releaser_file() -> Path:
    return Path(settings.BERTH_HOME) / "sample-releaser-token"


def site_folder() -> Path:
    """The folder that the sample's tasks write to. Where Berth runs as root, tasks run as other
    users, who cannot enter a private home.
    """
    home = Path(settings.BERTH_HOME)
    if os.geteuid() != 0:
        return home / "sample-site"
    digest = hashlib.sha256(str(home.resolve()).encode()).hexdigest()[:16]
    return env.work() / f"berth-sample-{digest}"  # `_make_site` checks its owner


def find_freeze(now: datetime) -> dict[str, object]:
    """The window of the weekly freeze: near, but not while a newcomer looks at the sample."""
    start = now.astimezone(UTC) + FREEZE_AHEAD
    end = start + FREEZE_LENGTH
    days = [DAYS[start.weekday()]]
    return {"days": days, "from": f"{start:%H}:00", "to": f"{end:%H}:00", "zone": "UTC"}


def read_configs() -> list[dict[str, Any]]:
    return list(yaml.safe_load_all(POOLS.read_text()))


def _make_site() -> Path:
    """Create the folder. Raises Conflict if it belongs to another user."""
    site = site_folder()
    site.mkdir(mode=0o755, parents=True, exist_ok=True)
    if site.is_symlink() or site.stat().st_uid != os.geteuid():
        raise Conflict(
            f"{site} belongs to another user.", way_out="Move it away, then load the sample."
        )
    site.chmod(0o755)  # for all umasks, because tasks run as other users
    pages = site / "pages"
    pages.mkdir(exist_ok=True)
    pages.chmod(0o777 if os.geteuid() == 0 else 0o700)
    return pages


def _make_pool(config: dict[str, Any]) -> tuple[Pool, bool]:
    pool = Pool.objects.filter(LIVE, name=config["name"]).first()
    if "env" in config.get("task", {}):
        config["task"]["env"]["HELLO_TARGET"] = str(_make_site())
    for freeze in config.get("scaling", {}).get("freeze", ()):
        freeze |= find_freeze(timezone.now())
    if pool is None:
        return create_pool(config, reason=REASON), True
    if pool.spec.get("group") != GROUP:
        raise Conflict(
            f"There is a pool {pool.name} that is not the sample's.",
            way_out="Rename or delete it, then load the sample.",
        )
    if pool.state == "deleting":
        raise Conflict(
            f"Pool {pool.name} of the sample is still being deleted.",
            way_out="Load it again in a moment.",
        )
    return pool, False


def _make_token(name: str, pools: list[Pool]) -> str:
    """A token for a user without a password that has one role, in these pools only."""
    user = _find_user(name)
    if user is None:
        user = User(username=name)
        user.set_unusable_password()
        user.save()
    elif _may_sign_in(user):  # a person has this name
        raise Conflict(
            f"The user {name} exists and can sign in, but the sample needs this name.",
            way_out="Load the sample on another installation.",
        )
    for pool in pools:
        if not Grant.objects.filter(user=user, pool=pool, role=ROLES[name]).exists():
            create_grant(role=ROLES[name], user=user, pool=pool, reason=REASON)
    for token in Token.objects.filter(user=user, name=TOKEN, revoked_at__isnull=True):
        revoke_token(token.pk, reason="replaced by a new token")
    return create_token(user=user, name=TOKEN, pools=pools)[1]


def _find_user(name: str) -> User | None:
    return User.objects.filter(username=name).first()


def _may_sign_in(user: User) -> bool:
    return user.has_usable_password() or user.is_superuser
