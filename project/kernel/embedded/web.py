"""The web process: uvicorn on the socket that the supervisor holds.

    python -m project.kernel.embedded.web SOCKET GO READY

The application is loaded at once and serves when GO is closed at its other end; READY is told when it does. All are file descriptors.
"""

import os
import socket
import sys

import uvicorn

LARGEST_FRAME = 64 * 1024  # bytes; what a browser sends us over WebSocket is small


class Server(uvicorn.Server):
    ready: int

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets=sockets)
        try:
            os.write(self.ready, b"1")
        except OSError:  # told already: this is a later start
            return


def main() -> None:
    listener = socket.socket(fileno=int(sys.argv[1]))
    config = uvicorn.Config(
        "project.asgi:application",
        log_level="warning",
        access_log=False,
        lifespan="off",
        server_header=False,
        timeout_graceful_shutdown=2,
        timeout_keep_alive=30,
        ws="websockets-sansio",
        ws_max_size=LARGEST_FRAME,
        ws_per_message_deflate=False,  # a frame is encoded once for all sockets; compressing it anew for each would cost more than it saves
        proxy_headers=False,
        log_config=None,
    )
    config.load()
    os.read(int(sys.argv[2]), 1)
    server = Server(config)
    server.ready = int(sys.argv[3])
    server.run(sockets=[listener])


if __name__ == "__main__":
    main()
