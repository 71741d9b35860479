"""A scratch database beside the one of the tests; the test migrates it itself."""

import copy
import os
from collections.abc import Iterator
from contextlib import contextmanager
from urllib.parse import urlsplit

import psycopg
from django.db import connections
from django.db.backends.base.base import BaseDatabaseWrapper


def url_of(name: str) -> str:
    return urlsplit(os.environ["DATABASE_URL"])._replace(path=f"/{name}").geturl()


@contextmanager
def scratch_database(alias: str) -> Iterator[BaseDatabaseWrapper]:
    name = f"{alias}_{os.getpid()}"
    with psycopg.connect(url_of("postgres"), autocommit=True) as server:
        server.execute(f'DROP DATABASE IF EXISTS "{name}" WITH (FORCE)')
        server.execute(f'CREATE DATABASE "{name}"')
        settings = copy.deepcopy(connections.databases["default"])
        settings["NAME"] = name
        settings["OPTIONS"]["options"] = "-c lock_timeout=5s"
        connections.databases[alias] = settings
        try:
            yield connections[alias]
        finally:
            connections[alias].close()
            del connections[alias]
            del connections.databases[alias]
            server.execute(f'DROP DATABASE "{name}" WITH (FORCE)')
