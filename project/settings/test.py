"""Profile of tests, on services that `tests.boot` starts."""

from project.settings.base import *  # noqa: F403

DEBUG = False
SECRET_KEY = "only for tests"  # noqa: S105
ALLOWED_HOSTS = ["*"]
PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]
WHITENOISE_AUTOREFRESH = True
WHITENOISE_USE_FINDERS = True
BERTH_IS_LOOPBACK = True
BERTH_LOST_GRACE = 0.0  # tests of the grace set it
