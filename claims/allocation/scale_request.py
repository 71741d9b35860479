"""Asking for more capacity once somebody waits."""

from collections.abc import Iterable

from claims import claims_sql
from project.kernel.events.notify import publish


def request_scaling(pool_ids: Iterable[int]) -> None:
    """Compare and set: ten thousand that wait make one request and one wake-up. After the commit
    of whoever could not be served.
    """
    won = [claims_sql.request_scale(pool=pool_id) for pool_id in sorted(set(pool_ids))]
    if any(won):
        publish("pools")
