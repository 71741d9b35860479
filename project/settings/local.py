"""One machine: `make up`, commands beside it, and development."""

import os
import socket

from project.settings import environment as env
from project.settings.base import *  # noqa: F403

DEBUG = env.is_on("BERTH_DEBUG")
SECRET_KEY = os.environ.get("SECRET_KEY") or env.secret("secret-key")

# Names under which this machine may be asked. Beyond loopback only if BERTH_BIND opens it; more
# names in BERTH_HOSTS.
BIND = os.environ.get("BERTH_BIND") or "127.0.0.1"
ALLOWED_HOSTS = ["localhost", "127.0.0.1", "[::1]", *env.list_words("BERTH_HOSTS")]
BERTH_IS_LOOPBACK = BIND in {"127.0.0.1", "::1", "localhost"}
if not BERTH_IS_LOOPBACK:
    ALLOWED_HOSTS += [socket.gethostname(), BIND]
CSRF_TRUSTED_ORIGINS = env.list_words("BERTH_ORIGINS")

WHITENOISE_USE_FINDERS = True
WHITENOISE_AUTOREFRESH = DEBUG
