"""The sample comes and goes as a whole: its pools, its user, the token its driver signs in with.

Its pools say that they are the sample's (`group: Sample`), and a pool that does not is never
touched. Loading twice makes what is missing; the token is new each time, because its secret is
nowhere but in the file.
"""

import hashlib
import os
import shutil
from pathlib import Path
from typing import Any

import yaml
from django.conf import settings
from django.contrib.auth.models import User
from django.db import transaction

from claims.lifecycle.pool_deletion import delete_pool
from pools.access.tokens import create_token, revoke_token
from pools.lifecycle.selectors import LIVE, spec_of
from pools.lifecycle.services import create_pool
from pools.models import Grant, Pool, Token
from pools.providers.base import has_agents
from pools.roles.services import create_grant
from project.kernel.db.locks import SAMPLE, lock_in_transaction
from project.kernel.embedded.process import write_private
from project.kernel.errors import Conflict
from project.settings import environment as env

POOLS = Path(__file__).with_name("pools.yaml")
GROUP = "Sample"
USER = "sample"
APPROVER = "ben"  # decides about some plans, so that the way of a plan is seen
TOKEN = "driver"  # noqa: S105  its name
ROLES = {USER: "claimant", APPROVER: "approver"}
REASON = "the sample"


def load_sample() -> list[str]:
    """What was done, in words. The driver starts once the file is there: it is written last."""
    with transaction.atomic():
        lock_in_transaction(SAMPLE, "sample")
        said, pools = [], []
        for config in read_configs():
            pool, is_new = _make_pool(config)
            pools.append(pool)
            said.append(f"pool {pool.name} {'is made' if is_new else 'is there already'}")
        secret = _make_token(USER, pools)
        approver = _make_token(APPROVER, [pool for pool in pools if has_agents(spec_of(pool))])
    write_private(approver_file(), f"{approver}\n")
    write_private(token_file(), f"{secret}\n")
    return [*said, f"the driver's token is in {token_file()}"]


def remove_sample() -> list[str]:
    """The driver stops first; then each pool ends its claims, and goes when it is empty. Its
    events stay.
    """
    for file in (token_file(), approver_file()):
        file.unlink(missing_ok=True)
    with transaction.atomic():
        lock_in_transaction(SAMPLE, "sample")
        users = [
            user for user in map(_find_user, ROLES) if user is not None and not _may_sign_in(user)
        ]
        for token in Token.objects.filter(user__in=users, name=TOKEN, revoked_at__isnull=True):
            revoke_token(token.pk, reason="the sample is removed")
    said = []
    for pool in list_pools_of_sample():
        if pool.state != "deleting":
            delete_pool(pool_name=pool.name, cascade=True, reason="the sample is removed")
        said.append(
            f"pool {pool.name} is being deleted, with its "
            f"claims{' and agents' if has_agents(spec_of(pool)) else ''}"
        )
    shutil.rmtree(site_folder(), ignore_errors=True)
    return said or ["there is no sample here"]


def is_sample_loaded() -> bool:
    return bool(list_pools_of_sample())


def list_pools_of_sample() -> list[Pool]:
    names = [config["name"] for config in read_configs()]
    return list(Pool.objects.filter(LIVE, name__in=names, spec__group=GROUP).order_by("name"))


def token_file() -> Path:
    return Path(settings.BERTH_HOME) / "sample-token"


def approver_file() -> Path:
    return Path(settings.BERTH_HOME) / "sample-approver-token"


def site_folder() -> Path:
    """What the sample's tasks keep in order. Where we are root they run as users of their own,
    who cannot enter a private home.
    """
    home = Path(settings.BERTH_HOME)
    if os.geteuid() != 0:
        return home / "sample-site"
    # See _make_site.
    return (
        env.work() / f"berth-sample-{hashlib.sha256(str(home.resolve()).encode()).hexdigest()[:16]}"
    )


def read_configs() -> list[dict[str, Any]]:
    return list(yaml.safe_load_all(POOLS.read_text()))


def _make_site() -> Path:
    """One that somebody else has made is not ours to use."""
    site = site_folder()
    site.mkdir(mode=0o755, parents=True, exist_ok=True)
    if site.is_symlink() or site.stat().st_uid != os.geteuid():
        raise Conflict(
            f"{site} belongs to somebody else.", way_out="Move it away, then load the sample."
        )
    site.chmod(0o755)  # whatever the umask: tasks run as users of their own
    pages = site / "pages"
    pages.mkdir(exist_ok=True)
    pages.chmod(0o777 if os.geteuid() == 0 else 0o700)
    return pages


def _make_pool(config: dict[str, Any]) -> tuple[Pool, bool]:
    pool = Pool.objects.filter(LIVE, name=config["name"]).first()
    if "env" in config.get("task", {}):
        config["task"]["env"]["HELLO_TARGET"] = str(_make_site())
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
    """For a user that nobody can sign in as, with one role in these pools alone."""
    user = _find_user(name)
    if user is None:
        user = User(username=name)
        user.set_unusable_password()
        user.save()
    elif _may_sign_in(user):  # never somebody's who happens to have that name
        raise Conflict(
            f"There is a user {name} who can sign in.",
            way_out="The sample needs this name. Try it on another installation.",
        )
    for pool in pools:
        if not Grant.objects.filter(user=user, pool=pool, role=ROLES[name]).exists():
            create_grant(role=ROLES[name], user=user, pool=pool, reason=REASON)
    for token in Token.objects.filter(user=user, name=TOKEN, revoked_at__isnull=True):
        revoke_token(token.pk, reason="a new one takes its place")
    return create_token(user=user, name=TOKEN, pools=pools)[1]


def _find_user(name: str) -> User | None:
    return User.objects.filter(username=name).first()


def _may_sign_in(user: User) -> bool:
    return user.has_usable_password() or user.is_superuser
