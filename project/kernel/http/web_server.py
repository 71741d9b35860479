"""Options of uvicorn, the same under `make up` and in a container."""

import os
import resource

import uvicorn

LARGEST_FRAME = 64 * 1024  # bytes of a WebSocket message from a browser
# The process raises its limit of descriptors up to this; BERTH_CONNECTIONS limits their use.
MOST_DESCRIPTORS = 16_384


def make_config(
    *, graceful_shutdown: int, host: str = "127.0.0.1", port: int = 8000
) -> uvicorn.Config:
    raise_descriptor_limit()
    return uvicorn.Config(
        "project.asgi:application",
        host=host,
        port=port,
        timeout_graceful_shutdown=graceful_shutdown,
        http="project.kernel.http.connections:LimitedHttpProtocol",
        ws="project.kernel.http.connections:LimitedWebSocketProtocol",
        log_level="warning",
        access_log=False,
        lifespan="off",
        server_header=False,
        timeout_keep_alive=int(os.environ.get("BERTH_IDLE_SECONDS", "30")),
        ws_max_size=LARGEST_FRAME,
        # A frame is encoded once for all sockets; compression would repeat for each socket and
        # cost more than it saves.
        ws_per_message_deflate=False,
        proxy_headers=False,  # project.kernel.http.proxies reads them
        log_config=None,
    )


def raise_descriptor_limit() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = MOST_DESCRIPTORS if hard == resource.RLIM_INFINITY else min(hard, MOST_DESCRIPTORS)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
