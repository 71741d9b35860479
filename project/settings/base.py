"""Settings shared by all profiles. A profile sets the secret key, the hosts and the rules of the
transport.
"""

import os
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

from django.core.exceptions import ImproperlyConfigured

from pools.config.durations import parse_duration
from pools.config.sizes import parse_size
from project.kernel.logs import logging_settings
from project.kernel.security.client_address import Network, read_networks
from project.kernel.version import __version__
from project.settings import environment as env
from project.settings.admin import UNFOLD as UNFOLD

BASE_DIR = env.ROOT


def read_age(text: str) -> float | None:
    """Seconds; None: never."""
    found = None if text == "never" else parse_duration(text)
    if text != "never" and not found:
        raise ImproperlyConfigured(
            f"BERTH_TOKEN_AGE={text[:40]} is not a duration. Use a duration like 30d or 12h, or "
            "never."
        )
    return found


def read_bytes(name: str, default: str) -> int | None:
    """A size in bytes; None: no limit."""
    text = os.environ.get(name, "").strip() or default
    found = None if text == "none" else parse_size(text)
    if text != "none" and found is None:
        raise ImproperlyConfigured(
            f"{name}={text[:40]} is not a size. Use a size like 500MB or 5GB, or none."
        )
    return found


def read_proxies(name: str, default: str) -> tuple[Network, ...]:
    try:
        return tuple(read_networks(env.list_words(name, default)))
    except ValueError as error:
        raise ImproperlyConfigured(f"{name}: {error}") from None


BERTH_HOME = env.home()

INSTALLED_APPS = [
    "unfold.apps.BasicAppConfig",  # without unfold's admin site; Berth has its own
    "project.kernel.ui.admin_config.BerthAdminConfig",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.sessions",
    "django.contrib.messages",
    "django.contrib.staticfiles",
    "django.contrib.postgres",
    "django.contrib.humanize",
    "rest_framework",
    "drf_spectacular",
    "drf_spectacular_sidecar",
    "channels",
    "django_htmx",
    "project.kernel",
    "pools",
    "slots",
    "claims",
    "project.sample",
]

MIDDLEWARE = [
    "project.kernel.http.timing.TimeRequests",
    "project.kernel.http.middleware.SecurityHeaders",
    "django.middleware.security.SecurityMiddleware",
    "whitenoise.middleware.WhiteNoiseMiddleware",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "project.kernel.http.middleware.Addresses",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "project.kernel.http.middleware.SessionLimits",
    "django.contrib.messages.middleware.MessageMiddleware",
    "django.middleware.clickjacking.XFrameOptionsMiddleware",
    "django_htmx.middleware.HtmxMiddleware",
]

ROOT_URLCONF = "project.urls"
ASGI_APPLICATION = "project.asgi.application"
TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "DIRS": [BASE_DIR / "templates"],
        "OPTIONS": {
            "loaders": [
                (
                    "django.template.loaders.cached.Loader",
                    [
                        "project.kernel.ui.template_loader.Loader",
                        "django.template.loaders.app_directories.Loader",
                    ],
                )
            ],
            "context_processors": [
                "django.template.context_processors.request",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
            ],
        },
    }
]

DATABASES = {"default": env.database(env.database_url(), is_patient=env.is_on("BERTH_PATIENT"))}
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"

AUTHENTICATION_BACKENDS = ["project.kernel.security.login_throttle.SlowedBackend"]
AUTH_PASSWORD_VALIDATORS = [
    {
        "NAME": "django.contrib.auth.password_validation.MinimumLengthValidator",
        "OPTIONS": {"min_length": 10},
    },
    {"NAME": "django.contrib.auth.password_validation.CommonPasswordValidator"},
    {"NAME": "django.contrib.auth.password_validation.UserAttributeSimilarityValidator"},
]
LOGIN_URL = "sign-in"
LOGIN_REDIRECT_URL = "/"
LOGOUT_REDIRECT_URL = "/"

BERTH_SESSION_IDLE = 12 * 3600  # seconds without a request
BERTH_SESSION_LIFE = 7 * 24 * 3600  # seconds since the sign-in
SESSION_COOKIE_AGE = BERTH_SESSION_LIFE
SESSION_COOKIE_HTTPONLY = True
SESSION_COOKIE_SAMESITE = "Lax"
CSRF_COOKIE_HTTPONLY = True  # pages contain the token; no script reads the cookie
CSRF_COOKIE_SAMESITE = "Lax"
CSRF_FAILURE_VIEW = "project.kernel.http.problems.csrf_failure"
SECURE_CONTENT_TYPE_NOSNIFF = True
SECURE_REFERRER_POLICY = "same-origin"
SECURE_CROSS_ORIGIN_OPENER_POLICY = "same-origin"
X_FRAME_OPTIONS = "DENY"

# Each thread keeps a database connection.
BERTH_WEB_THREADS = int(os.environ.get("BERTH_WEB_THREADS", "8"))
# Limit of a token in all web processes together; a bulk call counts as one request.
BERTH_REQUESTS_PER_MINUTE = int(os.environ.get("BERTH_REQUESTS_PER_MINUTE", "6000"))
# Unknown tokens from one address. Valid tokens of the same address are not limited by it.
BERTH_STRANGERS_PER_MINUTE = int(os.environ.get("BERTH_STRANGERS_PER_MINUTE", "300"))
# Path, most bytes, and the guard that names the caller before a large body is read
# (project.kernel.http.bodies). The first match counts. The final slash is optional: a client that
# omitted it gets 308, and not a smaller limit.
CALLER, AGENT = (
    "pools.access.authentication.guard_caller",
    "claims.tasks.agent_api.endpoint.guard_agent",
)
BERTH_BODIES = [
    (r"/api/v1/agent/tasks/.*/plan-json/?$", 64_100_000, AGENT),
    (r"/api/v1/agent/tasks/.*/(plan|state)/?$", 260_000_000, AGENT),
    (r"/api/v1/agent/", 4_000_000, AGENT),
    (r"/api/v1/sources(/|$)", 32_000_000, CALLER),
    (r"/api/v1/", 4_000_000, CALLER),
    (r"/claims/run/", 33_000_000, CALLER),  # an archive in a form
    (r"/", 1_000_000, CALLER),
]
# The longest time without a byte of the body.
BERTH_BODY_SECONDS = float(os.environ.get("BERTH_BODY_SECONDS", "10"))
BERTH_BODY_RATE = int(os.environ.get("BERTH_BODY_RATE", "16000"))  # bytes a second, on average
# Connections of a web process (project.kernel.http.connections). Long polls and WebSockets
# are not idle.
BERTH_CONNECTIONS = int(os.environ.get("BERTH_CONNECTIONS", "4000"))
BERTH_CONNECTIONS_PER_ADDRESS = int(os.environ.get("BERTH_CONNECTIONS_PER_ADDRESS", "1000"))
BERTH_IDLE_CONNECTIONS = int(os.environ.get("BERTH_IDLE_CONNECTIONS", "1000"))
# The longest time for the head of a request.
BERTH_HEAD_SECONDS = float(os.environ.get("BERTH_HEAD_SECONDS", "10"))
BERTH_HEAD_BYTES = 65_536
# Trusted proxies, which may set X-Forwarded-For and X-Forwarded-Proto: addresses and networks,
# comma-separated.
BERTH_TRUSTED_PROXIES = read_proxies("BERTH_TRUSTED_PROXIES", "")
# Seconds after its bind in which a claim is not lost with its member.
BERTH_LOST_GRACE = 10.0
# Calls that the event loop answers if it can (project.kernel.http.deferred).
BERTH_SHORT_CALLS = {"/api/v1/claims/": "POST"}
DATA_UPLOAD_MAX_MEMORY_SIZE = 4_000_000
DATA_UPLOAD_MAX_NUMBER_FIELDS = 2000

# No inline scripts and no inline style elements. Style attributes hold numbers, such as the length
# of a bar.
STRICT = (
    "default-src 'self'; style-src-attr 'unsafe-inline'; img-src 'self' data:; object-src 'none'; "
    "base-uri 'none'; form-action 'self'"
)
STRICT += "; frame-ancestors 'none'"
# The admin uses Alpine, which evaluates expressions and writes style elements.
ADMIN = STRICT + "; script-src 'self' 'unsafe-eval'; style-src 'self' 'unsafe-inline'"
BERTH_CONTENT_POLICIES = {"/": STRICT, "/admin/": ADMIN}

# Keys that encrypt secrets, logs and plans at rest: the first key encrypts, all keys decrypt.
# Default: BERTH_HOME/sealing-key (project.kernel.security.encryption).
BERTH_SEALING_KEYS = env.list_words("BERTH_SEALING_KEYS")
BERTH_MAKES_SEALING_KEY = True  # one machine creates its own key
# Several web replicas need a storage that all of them share: another backend, or BERTH_FILES on a
# shared disk.
STORAGES: dict[str, dict[str, Any]] = {
    "default": {"BACKEND": "django.core.files.storage.FileSystemStorage"},
    "staticfiles": {"BACKEND": "django.contrib.staticfiles.storage.StaticFilesStorage"},
    "sealed": {
        "BACKEND": "claims.tasks.files.sealed_files.DurableStorage",
        "OPTIONS": {
            "location": env.files(),
            "file_permissions_mode": 0o600,
            "directory_permissions_mode": 0o700,
        },
    },
}

# Limits of uploaded sources: bytes per user, and bytes of the disk that stay free for plans, logs
# and the database.
BERTH_SOURCE_QUOTA = read_bytes("BERTH_SOURCE_QUOTA", "5GB")
BERTH_DISK_RESERVE = read_bytes("BERTH_DISK_RESERVE", "500MB")

LANGUAGE_CODE = "en"
TIME_ZONE = "UTC"
USE_I18N = False
DATETIME_FORMAT = "Y-m-d H:i:s"
DATE_FORMAT = "Y-m-d"

STATIC_URL = "/static/"
STATICFILES_DIRS = [BASE_DIR / "project" / "static"]

REST_FRAMEWORK = {
    "DEFAULT_SCHEMA_CLASS": "project.kernel.http.schema.ProblemSchema",
    "DEFAULT_AUTHENTICATION_CLASSES": [
        "pools.access.authentication.TokenAuthentication",
        "pools.access.authentication.PersonAuthentication",
    ],
    "DEFAULT_PERMISSION_CLASSES": ["rest_framework.permissions.IsAuthenticated"],
    "DEFAULT_RENDERER_CLASSES": ["rest_framework.renderers.JSONRenderer"],
    "DEFAULT_PARSER_CLASSES": ["project.kernel.http.api_base.JSONInput"],
    "DEFAULT_METADATA_CLASS": None,
    "EXCEPTION_HANDLER": "project.kernel.http.problems.problem_handler",
}
SPECTACULAR_SETTINGS = {
    "TITLE": "Berth",
    "DESCRIPTION": (
        "Pools of capacity, their slots, and the claims that hold them. Every error is a problem "
        "(RFC 9457) with a way out."
    ),
    "VERSION": __version__,
    "SCHEMA_PATH_PREFIX": "/api/v1",
    "SERVE_AUTHENTICATION": [],  # the schema contains no secrets
    "SERVE_PERMISSIONS": [],
    "ENUM_NAME_OVERRIDES": {
        "RoleName": "pools.roles.schemas.ROLE_NAMES",
        "MemberState": "slots.api.schemas.MEMBER_STATES",
        "SlotState": "slots.api.schemas.SLOT_STATES",
        "ClaimState": "claims.allocation.api.schemas.CLAIM_STATES",
        "PoolState": "claims.lifecycle.api.pool_schemas.POOL_STATES",
        "Outcome": "claims.allocation.api.schemas.OUTCOME_NAMES",
    },
    "SERVE_INCLUDE_SCHEMA": False,
    "POSTPROCESSING_HOOKS": [
        "drf_spectacular.hooks.postprocess_schema_enums",
        "project.schema.add_pool_config",
        "project.schema_links.add_links",
    ],
    "SWAGGER_UI_DIST": "SIDECAR",
    "SWAGGER_UI_FAVICON_HREF": "SIDECAR",
    "REDOC_DIST": "SIDECAR",
}

REDIS_URL = env.redis_url()
# The pub/sub layer, because the socket timeout of redis-py ends idle sockets of the default layer.
# Its queues are unbounded, so it carries hints only.
CHANNEL_LAYERS = {
    "default": {
        "BACKEND": "channels_redis.pubsub.RedisPubSubChannelLayer",
        "CONFIG": {
            "hosts": [{"address": REDIS_URL or "redis://127.0.0.1:1/0", "socket_timeout": 30}],
            "prefix": "berth",
        },
    }
}

CELERY_BROKER_URL = REDIS_URL or "redis://127.0.0.1:1/0"
CELERY_TASK_IGNORE_RESULT = True
CELERY_TASK_ACKS_LATE = True
CELERY_TASK_REJECT_ON_WORKER_LOST = True
CELERY_WORKER_PREFETCH_MULTIPLIER = 1
# Further queues of workers; project/celery.py adds the queues of the providers in BERTH_PROVIDERS.
BERTH_QUEUES = ["default", *env.list_words("BERTH_QUEUES")]
CELERY_TASK_DEFAULT_QUEUE = "default"
CELERY_WORKER_HIJACK_ROOT_LOGGER = False
CELERY_BROKER_CONNECTION_RETRY_ON_STARTUP = True
CELERY_BROKER_TRANSPORT_OPTIONS = {
    "visibility_timeout": 300,
    "socket_timeout": 30,
    "socket_connect_timeout": 2,
}

LOGGING = logging_settings(
    as_json=env.is_on("BERTH_JSON_LOGS"), level=os.environ.get("BERTH_LOG_LEVEL", "INFO")
)

# The address of Berth in mails, and the mail server: smtp://user:password@host:587?tls=1. Without
# a server no mail is sent.
BERTH_URL = os.environ.get("BERTH_URL", "").rstrip("/")
BERTH_MAIL = os.environ.get("BERTH_MAIL", "")
_mail = urlsplit(BERTH_MAIL)
EMAIL_HOST, EMAIL_PORT = _mail.hostname or "localhost", _mail.port or 25
EMAIL_HOST_USER, EMAIL_HOST_PASSWORD = unquote(_mail.username or ""), unquote(_mail.password or "")
EMAIL_USE_TLS, EMAIL_USE_SSL = parse_qs(_mail.query).get("tls") == ["1"], _mail.scheme == "smtps"
EMAIL_TIMEOUT = 10
DEFAULT_FROM_EMAIL = os.environ.get("BERTH_MAIL_FROM", "berth@localhost")

# Age at which the token of an agent is rotated.
BERTH_TOKEN_AGE = read_age(os.environ.get("BERTH_TOKEN_AGE", "").strip() or "30d")
BERTH_METRICS_TOKEN = os.environ.get("BERTH_METRICS_TOKEN", "")
# A direct connection for LISTEN, past a transaction pooler.
BERTH_DIRECT_DATABASE_URL = os.environ.get("BERTH_DIRECT_DATABASE_URL", "")

# The controllers that `manage.py controllers` runs in one process. Larger installations run one
# command for each controller.
BERTH_CONTROLLERS: list[str] = [
    "claims.controllers.Allocator",
    "claims.controllers.Finalizer",
    "claims.controllers.Scaler",
    "slots.sync.watcher.Watcher",
]
# Dotted names of the provider classes that pools may use, in the order of the form of a new pool.
# Each package below pools/providers is found by itself; an installation may add classes.
BERTH_PROVIDERS = env.list_providers()
# Kinds of providers that new pools and new members may have, like static,kubernetes. Empty: all
# of BERTH_PROVIDERS.
BERTH_ALLOWED_PROVIDERS = env.list_words("BERTH_ALLOWED_PROVIDERS")
# Addresses on which forwarders listen, and networks from which each gets an address of its own.
# Empty: 127.0.0.1 and ::1 (pools/providers/forwarder/addresses.py).
BERTH_FORWARDER_BIND = env.list_words("BERTH_FORWARDER_BIND")
# All claimants are trusted: tasks on this machine may read Berth's own passwords and keys
# (pools.providers.local.protection).
BERTH_TRUST_CLAIMANTS = env.is_on("BERTH_TRUST_CLAIMANTS")
# Folders that tasks in namespaces may write to, besides their own.
BERTH_TASK_FOLDERS = env.list_words("BERTH_TASK_FOLDERS")
# Users of the sample's driver. They do not count as people unless they have a password.
BERTH_PROGRAM_USERS = ("sample", "ben", "vera")
BERTH_IS_LOOPBACK = False  # whether Berth listens on loopback alone
# The name that marks objects of this installation in outside systems; empty: a random name in the
# database. A copy of a database needs a different name.
BERTH_INSTALLATION = os.environ.get("BERTH_INSTALLATION", "")
# Dotted names of further scaling policies, besides fixed, utilisation, warm and on_demand
# (docs/scaling.md).
BERTH_SCALING_POLICIES: list[str] = []
