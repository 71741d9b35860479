"""Profile of an installation behind a proxy that terminates TLS."""

import os

from project.kernel.logs import logging_settings
from project.settings import environment as env
from project.settings.base import *  # noqa: F403

DEBUG = False
SECRET_KEY = os.environ.get("SECRET_KEY") or env.secret("secret-key")
ALLOWED_HOSTS = [*env.list_words("BERTH_HOSTS"), "localhost"]  # localhost: probes
CSRF_TRUSTED_ORIGINS = env.list_words("BERTH_ORIGINS")

SESSION_COOKIE_SECURE = True
CSRF_COOKIE_SECURE = True
SECURE_SSL_REDIRECT = True
# Probes and metrics come without TLS, from inside.
SECURE_REDIRECT_EXEMPT = [r"^healthz$", r"^readyz$", r"^metrics$"]
SECURE_PROXY_SSL_HEADER = ("HTTP_X_FORWARDED_PROTO", "https")
BERTH_TRUSTED_PROXIES = read_proxies("BERTH_TRUSTED_PROXIES", "127.0.0.1,::1")
SECURE_HSTS_SECONDS = 365 * 24 * 3600
SECURE_HSTS_INCLUDE_SUBDOMAINS = True
SECURE_HSTS_PRELOAD = True
STATIC_ROOT = BASE_DIR / "staticfiles"
STORAGES["staticfiles"] = {"BACKEND": "whitenoise.storage.CompressedManifestStaticFilesStorage"}
BERTH_MAKES_SEALING_KEY = False  # each replica would create its own key
LOGGING = logging_settings(
    as_json=env.is_on("BERTH_JSON_LOGS", True), level=os.environ.get("BERTH_LOG_LEVEL", "INFO")
)
