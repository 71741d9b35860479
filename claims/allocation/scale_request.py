"""Requests more members for pools in which a claim waits."""

from collections.abc import Iterable

from claims import claims_sql
from project.kernel.events.notify import publish


def request_scaling(pool_ids: Iterable[int]) -> None:
    """Compare and set: ten thousand waiting claims make one request and wake the scaler once. Call
    it after the commit of the claim that waits.
    """
    won = [claims_sql.request_scale(pool=pool_id) for pool_id in sorted(set(pool_ids))]
    if any(won):
        publish("pools")
