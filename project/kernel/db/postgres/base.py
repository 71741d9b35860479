import select
from datetime import datetime
from typing import Any

import psycopg
from django.db.backends.postgresql import base
from django.db.backends.postgresql.psycopg_any import BaseTzLoader
from psycopg.abc import AdaptContext, Buffer
from psycopg.postgres import types

MOMENT = types["timestamptz"].oid
MOST_REMEMBERED = 100  # moments of one result


class DatabaseWrapper(base.DatabaseWrapper):
    """Takes an idle connection without unread data as alive: a server that ends sends a message or
    closes the socket, and both make the socket readable.

    Django sends `SELECT 1` at the start of each request instead, which costs a round trip. TCP
    keepalive detects a host that vanishes, as during a request.
    """

    def get_new_connection(self, conn_params: dict[str, Any]) -> psycopg.Connection[Any]:
        connection: psycopg.Connection[Any] = super().get_new_connection(conn_params)
        of_django = connection.adapters.get_loader(MOMENT, psycopg.pq.Format.TEXT)
        if of_django is not None and issubclass(of_django, BaseTzLoader):
            connection.adapters.register_loader(MOMENT, _remembering(of_django))
        return connection

    def is_usable(self) -> bool:
        connection = self.connection
        if connection is None or connection.closed:
            return False
        poll = select.poll()
        poll.register(connection.fileno(), select.POLLIN)
        return not poll.poll(0) or super().is_usable()


def _remembering(loader: type[BaseTzLoader]) -> type[BaseTzLoader]:
    """A loader that parses each moment of a result once: the rows of a batch share the moments of
    their statements, and parsing one in Python takes longer than reading the rest of a row.
    """

    class RememberingLoader(loader):  # type: ignore[misc]
        def __init__(self, oid: int, context: AdaptContext | None = None) -> None:
            super().__init__(oid, context)
            self.known: dict[bytes, datetime] = {}

        def load(self, data: Buffer) -> datetime:
            text = bytes(data)
            found = self.known.get(text)
            if found is None:
                if len(self.known) >= MOST_REMEMBERED:
                    self.known.clear()
                found = self.known[text] = super().load(data)
            return found

    return RememberingLoader
