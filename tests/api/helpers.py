"""Pools for the tests of the API."""

from typing import Any

from pools.lifecycle.services import create_pool
from pools.models import Pool


def make_pool(
    name: str = "env-test", *, slots: Any = 2, members: tuple[str, ...] = ("a",), **config: Any
) -> Pool:
    return create_pool(
        {
            "name": name,
            "slots": slots,
            "members": {"list": [{"name": member} for member in members]},
            **config,
        }
    )
