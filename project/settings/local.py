"""Profile of one machine: `make up`, management commands, and development."""

import os
import socket

from project.settings import environment as env
from project.settings.base import *  # noqa: F403

DEBUG = env.is_on("BERTH_DEBUG")
SECRET_KEY = os.environ.get("SECRET_KEY") or env.secret("secret-key")

# Host names of this machine. Other than loopback names need BERTH_BIND; BERTH_HOSTS adds names.
BIND = os.environ.get("BERTH_BIND") or "127.0.0.1"
ALLOWED_HOSTS = ["localhost", "127.0.0.1", "[::1]", *env.list_words("BERTH_HOSTS")]
BERTH_IS_LOOPBACK = BIND in {"127.0.0.1", "::1", "localhost"}
if not BERTH_IS_LOOPBACK:
    ALLOWED_HOSTS += [socket.gethostname(), BIND]
CSRF_TRUSTED_ORIGINS = env.list_words("BERTH_ORIGINS")

WHITENOISE_USE_FINDERS = True
WHITENOISE_AUTOREFRESH = DEBUG
