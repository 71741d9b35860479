"""HTTP and WebSocket, composed."""

import os

import django
from channels.routing import ProtocolTypeRouter, URLRouter
from channels.sessions import CookieMiddleware

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "project.settings.local")
django.setup(set_prefix=False)

import project.urls  # noqa: E402, F401  (every view: before the first request, and before what the views import)
from claims.api.agents.socket import agent_sockets  # noqa: E402
from pools.consumers import sockets  # noqa: E402
from project.kernel.http import Http  # noqa: E402

# Sockets look at host, origin, session and token themselves: a program with a token has no origin.
application = ProtocolTypeRouter({"http": Http(), "websocket": CookieMiddleware(URLRouter([*sockets, *agent_sockets]))})
