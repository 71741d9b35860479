"""People who may start tasks in a pool."""

from django.conf import settings

from pools.access import permissions_sql
from pools.access.permissions import CLAIMANT, INCLUDES

CLAIMING = [role for role, included in INCLUDES.items() if CLAIMANT in included]


def is_program(username: str) -> bool:
    """Whether this is a user of Berth's own programs. It counts as a person once a person can
    sign in as it.
    """
    return username in settings.BERTH_PROGRAM_USERS


def list_claimants(pool_id: int | None) -> list[str]:
    """Names of active people with a role that lets them claim in this pool; None: in all pools."""
    return [
        row.username
        for row in permissions_sql.claimants(
            pool=pool_id, roles=CLAIMING, programs=list(settings.BERTH_PROGRAM_USERS)
        )
    ]
