"""People who may create claims in a pool."""

from django.conf import settings

from pools.access import permissions_sql
from pools.access.permissions import CLAIMANT, INCLUDES

CLAIMING = [role for role, included in INCLUDES.items() if CLAIMANT in included]


def is_program(username: str) -> bool:
    """True for users of Berth's own programs. Such a user counts as a person once it has a
    password.
    """
    return username in settings.BERTH_PROGRAM_USERS


def list_claimants(pool_id: int | None) -> list[str]:
    """Names of active people with a claiming role in this pool (None: in all pools)."""
    return [
        row.username
        for row in permissions_sql.claimants(
            pool=pool_id, roles=CLAIMING, programs=list(settings.BERTH_PROGRAM_USERS)
        )
    ]
