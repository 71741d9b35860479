"""How the web process runs uvicorn: the same options under `make up` and in a container."""

import os
import resource
from typing import Any

import uvicorn

LARGEST_FRAME = 64 * 1024  # bytes; what a browser sends us over WebSocket is small
# As many as the system allows, up to this; BERTH_CONNECTIONS says how many of them are used.
MOST_DESCRIPTORS = 16_384


def make_config(**options: Any) -> uvicorn.Config:
    raise_descriptor_limit()
    return uvicorn.Config(
        "project.asgi:application",
        http="project.kernel.http.connections:LimitedHttpProtocol",
        ws="project.kernel.http.connections:LimitedWebSocketProtocol",
        log_level="warning",
        access_log=False,
        lifespan="off",
        server_header=False,
        timeout_keep_alive=int(os.environ.get("BERTH_IDLE_SECONDS", "30")),
        ws_max_size=LARGEST_FRAME,
        # A frame is encoded once for all sockets; compressing it anew for each would cost more
        # than it saves.
        ws_per_message_deflate=False,
        proxy_headers=False,  # project.kernel.http.proxies reads them
        log_config=None,
        **options,
    )


def raise_descriptor_limit() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = MOST_DESCRIPTORS if hard == resource.RLIM_INFINITY else min(hard, MOST_DESCRIPTORS)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
