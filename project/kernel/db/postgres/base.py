import select

from django.db.backends.postgresql import base


class DatabaseWrapper(base.DatabaseWrapper):
    """Takes an idle connection without unread data as alive: a server that ends sends a message or
    closes the socket, and both make the socket readable.

    Django sends `SELECT 1` at the start of each request instead, which costs a round trip. TCP
    keepalive detects a host that vanishes, as during a request.
    """

    def is_usable(self) -> bool:
        connection = self.connection
        if connection is None or connection.closed:
            return False
        poll = select.poll()
        poll.register(connection.fileno(), select.POLLIN)
        return not poll.poll(0) or super().is_usable()
