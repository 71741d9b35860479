"""The ASGI application: HTTP and WebSockets."""

import os

import django
from channels.routing import ProtocolTypeRouter, URLRouter
from channels.sessions import CookieMiddleware
from django.conf import settings

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "project.settings.local")
django.setup(set_prefix=False)

# Imports all views before the first request, and before the modules that views import.
import project.urls  # noqa: E402, F401
from claims.tasks.agent_api.socket import agent_sockets  # noqa: E402
from pools.access.rate_limit import anonymous_buckets, buckets  # noqa: E402
from pools.access.shared_rate_limit import SharedBuckets  # noqa: E402
from pools.http.consumers import sockets  # noqa: E402
from project.kernel.http.asgi import Http  # noqa: E402
from project.kernel.http.proxies import ClientAddress  # noqa: E402
from project.kernel.live.socket import unknown_sockets  # noqa: E402

if settings.REDIS_URL:
    SharedBuckets(settings.REDIS_URL, {"callers": buckets, "strangers": anonymous_buckets}).start()

# Sockets check host, origin, session and token themselves: a program with a token has no origin.
websockets = CookieMiddleware(URLRouter([*sockets, *agent_sockets, *unknown_sockets]))
application = ClientAddress(ProtocolTypeRouter({"http": Http(), "websocket": websockets}))
