import select

from django.db.backends.postgresql import base


class DatabaseWrapper(base.DatabaseWrapper):
    """An idle connection on which nothing arrived is alive: a server that ends says so, or its
    socket closes, and both can be read.

    Django asks `SELECT 1` at the start of each request instead, a round trip that a fast request
    notices. A host that vanishes without a word is found by TCP keepalive, as it would be in the
    middle of a request.
    """

    def is_usable(self) -> bool:
        connection = self.connection
        if connection is None or connection.closed:
            return False
        poll = select.poll()
        poll.register(connection.fileno(), select.POLLIN)
        return not poll.poll(0) or super().is_usable()
