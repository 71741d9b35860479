"""One machine: `make up`, commands beside it, and development."""

from project.settings import environment as env
from project.settings.base import *  # noqa: F403

DEBUG = env.is_on("BERTH_DEBUG")
SECRET_KEY = env.os.environ.get("SECRET_KEY") or env.secret("secret-key")
ALLOWED_HOSTS = env.list_words("BERTH_HOSTS", "localhost,127.0.0.1,[::1]")
WHITENOISE_USE_FINDERS = True
