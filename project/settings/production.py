"""Behind a proxy that ends TLS."""

import os

from project.settings import environment as env
from project.settings.base import *  # noqa: F403

DEBUG = False
SECRET_KEY = os.environ.get("SECRET_KEY") or env.secret("secret-key")
ALLOWED_HOSTS = env.list_words("BERTH_HOSTS")
