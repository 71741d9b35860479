"""Connections beside Django's: LISTEN, NOTIFY and the live reader each keep one, outside of every
transaction.

They need a direct connection to PostgreSQL. Behind a transaction pooler, BERTH_DIRECT_DATABASE_URL
names the direct address.
"""

from typing import Any

import psycopg
from asgiref.sync import sync_to_async
from django.conf import settings
from django.db import connections
from psycopg.conninfo import conninfo_to_dict

OWN = {
    "cursor_factory",
    "context",
    "prepare_threshold",
    "pool",
    "server_side_binding",
    "assume_role",
    "isolation_level",
}  # Django's, not libpq's


def direct_parameters(application: str) -> dict[str, Any]:
    """Keyword arguments for psycopg.connect or psycopg.AsyncConnection.connect, for Django's
    current database.
    """
    parameters = {
        k: v for k, v in connections["default"].get_connection_params().items() if k not in OWN
    }
    if direct := settings.BERTH_DIRECT_DATABASE_URL:
        database = parameters.get("dbname")  # a test runs on a database of another name
        parameters |= conninfo_to_dict(direct) | ({"dbname": database} if database else {})
    keepalive = {
        "keepalives": 1,
        "keepalives_idle": 10,
        "keepalives_interval": 5,
        "keepalives_count": 3,
        "connect_timeout": 5,
    }
    # No prepared statements: the connection lives for weeks, and a plan for small tables would live
    # as long.
    ours = {
        "application_name": f"berth {application}"[:63],
        "autocommit": True,
        "prepare_threshold": None,
    }
    return keepalive | parameters | ours


async def connect_direct_async(application: str) -> psycopg.AsyncConnection[Any]:
    parameters = await sync_to_async(direct_parameters, thread_sensitive=False)(application)
    return await psycopg.AsyncConnection.connect(**parameters)


def connect_direct(application: str) -> psycopg.Connection[tuple[Any, ...]]:
    return psycopg.connect(**direct_parameters(application))
