"""`-p tests.boot`: one PostgreSQL and one Valkey for the whole test run, started before pytest-django reads the settings.

Workers of pytest-xdist inherit the environment, so they share them, each with a database of its own. DATABASE_URL and REDIS_URL,
where given, replace them.
"""

import atexit
import os
import shutil
import signal
import tempfile
from pathlib import Path

from project.kernel.embedded.postgres import FAST, EmbeddedPostgres
from project.kernel.embedded.valkey import EmbeddedValkey

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "project.settings.test")


def boot() -> None:
    if os.environ.get("DATABASE_URL") and os.environ.get("REDIS_URL"):
        return
    folder = Path(tempfile.mkdtemp(prefix="berth-test-"))
    os.environ["BERTH_HOME"] = str(folder / "home")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    if not os.environ.get("DATABASE_URL"):
        postgres = EmbeddedPostgres(folder / "postgres", settings=FAST).start()
        atexit.register(postgres.stop, signal.SIGQUIT)
        os.environ["DATABASE_URL"] = postgres.url()
    if not os.environ.get("REDIS_URL"):
        valkey = EmbeddedValkey(folder / "valkey").start()
        atexit.register(valkey.stop)
        os.environ["REDIS_URL"] = valkey.url


boot()
