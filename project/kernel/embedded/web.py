"""The web process: uvicorn on the socket that the supervisor holds.

    python -m project.kernel.embedded.web SOCKET GO READY

All arguments are file descriptors. The process loads the application at once, serves after the
other end of GO is closed, and then writes a byte to READY.
"""

import os
import socket
import sys

import uvicorn

from project.kernel.http.web_server import make_config
from project.kernel.management.startup import collection_paused


class Server(uvicorn.Server):
    ready: int

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets=sockets)
        try:
            os.write(self.ready, b"1")
        except OSError:  # closed after the first start
            return


def main() -> None:
    listener = socket.socket(fileno=int(sys.argv[1]))
    config = make_config(graceful_shutdown=2)
    with collection_paused():
        config.load()
    os.read(int(sys.argv[2]), 1)
    server = Server(config)
    server.ready = int(sys.argv[3])
    server.run(sockets=[listener])


if __name__ == "__main__":
    main()
