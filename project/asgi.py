"""HTTP and WebSocket, composed. Each app lists its sockets as `sockets` in its `consumers` module."""

import os
from importlib import import_module
from importlib.util import find_spec

import django
from channels.routing import ProtocolTypeRouter, URLRouter
from channels.sessions import CookieMiddleware

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "project.settings.local")
django.setup(set_prefix=False)

import project.urls  # noqa: E402, F401  (every view: before the first request, and before what the views import)
from project.kernel.http import Http  # noqa: E402

modules = [f"{app}.consumers" for app in ("project.kernel", "pools", "slots", "claims")]
sockets = [route for name in modules if find_spec(name) for route in getattr(import_module(name), "sockets", [])]

# Sockets look at host, origin, session and token themselves: a program with a token has no origin.
application = ProtocolTypeRouter({"http": Http(), "websocket": CookieMiddleware(URLRouter(sockets))})
