"""HTTP and WebSocket, composed. Each app lists its sockets as `sockets` in its `consumers` module."""

import os
from importlib import import_module
from importlib.util import find_spec

from channels.auth import AuthMiddlewareStack
from channels.routing import ProtocolTypeRouter, URLRouter
from channels.security.websocket import AllowedHostsOriginValidator
from django.core.asgi import get_asgi_application

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "project.settings.local")

http = get_asgi_application()
modules = [f"{app}.consumers" for app in ("project.kernel", "pools", "slots", "claims")]
sockets = [route for name in modules if find_spec(name) for route in getattr(import_module(name), "sockets", [])]

application = ProtocolTypeRouter({"http": http, "websocket": AllowedHostsOriginValidator(AuthMiddlewareStack(URLRouter(sockets)))})
