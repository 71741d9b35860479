"""The sample comes and goes as a whole: its pools, its user, the token its driver signs in with.

Its pools say that they are the sample's (`group: Sample`), and a pool that does not is never touched. Loading twice makes what is
missing; the token is new each time, because its secret is nowhere but in the file.
"""

from pathlib import Path
from typing import Any

import yaml
from django.conf import settings
from django.contrib.auth.models import User
from django.db import transaction

from claims.services import delete_pool
from pools.grants import give_grant
from pools.models import Grant, Pool, Token
from pools.selectors import LIVE
from pools.services import create_pool
from pools.tokens import create_token, revoke_token
from project.kernel.embedded.process import write_private
from project.kernel.errors import Conflict
from project.kernel.locks import SAMPLE, lock_in_transaction

POOLS = Path(__file__).with_name("pools.yaml")
GROUP = "Sample"
USER = "sample"
TOKEN = "driver"  # noqa: S105  its name
ROLE = "claimant"
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
        secret = _make_token(pools)
    write_private(token_file(), f"{secret}\n")
    return [*said, f"the driver's token is in {token_file()}"]


def remove_sample() -> list[str]:
    """The driver stops first; then each pool ends its claims, and goes when it is empty. Its events stay."""
    token_file().unlink(missing_ok=True)
    with transaction.atomic():
        lock_in_transaction(SAMPLE, "sample")
        user = _get_user()
        for token in Token.objects.filter(user=user, revoked_at__isnull=True) if user else ():
            revoke_token(token.pk, reason="the sample is removed")
    said = []
    for pool in list_pools_of_sample():
        if pool.state != "deleting":
            delete_pool(pool_name=pool.name, cascade=True, reason="the sample is removed")
        said.append(f"pool {pool.name} is being deleted, with its claims")
    return said or ["there is no sample here"]


def is_sample_loaded() -> bool:
    return bool(list_pools_of_sample())


def list_pools_of_sample() -> list[Pool]:
    names = [config["name"] for config in read_configs()]
    return list(Pool.objects.filter(LIVE, name__in=names, spec__group=GROUP).order_by("name"))


def token_file() -> Path:
    return Path(settings.BERTH_HOME) / "sample-token"


def read_configs() -> list[dict[str, Any]]:
    return list(yaml.safe_load_all(POOLS.read_text()))


def _make_pool(config: dict[str, Any]) -> tuple[Pool, bool]:
    pool = Pool.objects.filter(LIVE, name=config["name"]).first()
    if pool is None:
        return create_pool(config, reason=REASON), True
    if pool.spec.get("group") != GROUP:
        raise Conflict(f"There is a pool {pool.name} that is not the sample's.", way_out="Rename or delete it, then load the sample.")
    if pool.state == "deleting":
        raise Conflict(f"Pool {pool.name} of the sample is still being deleted.", way_out="Load it again in a moment.")
    return pool, False


def _make_token(pools: list[Pool]) -> str:
    """For a user that nobody can sign in as, who may claim in these pools alone."""
    user = _get_user()
    if user is None:
        user = User(username=USER)
        user.set_unusable_password()
        user.save()
    for pool in pools:
        if not Grant.objects.filter(user=user, pool=pool, role=ROLE).exists():
            give_grant(role=ROLE, user=user, pool=pool, reason=REASON)
    for token in Token.objects.filter(user=user, name=TOKEN, revoked_at__isnull=True):
        revoke_token(token.pk, reason="a new one takes its place")
    return create_token(user=user, name=TOKEN)[1]


def _get_user() -> User | None:
    """Never somebody's who happens to have that name: nobody can sign in as the sample's."""
    user = User.objects.filter(username=USER).first()
    if user is not None and (user.has_usable_password() or user.is_superuser):
        raise Conflict(f"There is a user {USER} who can sign in.", way_out="Rename that user, then try again.")
    return user
