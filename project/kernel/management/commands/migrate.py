"""Django's `migrate` for a database in use: one process migrates at a time, and no long
waits for locks.
"""

from typing import Any

from django.core.management.commands.migrate import Command as Migrate
from django.db import connections

from project.kernel.db.guards import patient

ONE_AT_A_TIME = 0x6265727468  # "berth"; an advisory lock of the session, released with it


class Command(Migrate):
    def handle(self, *args: object, **options: Any) -> None:
        connection = connections[options["database"]]
        with patient(), connection.cursor() as cursor:
            cursor.execute("SELECT pg_advisory_lock(%s)", [ONE_AT_A_TIME])
            cursor.execute("SET lock_timeout = '5s'")
            try:
                super().handle(*args, **options)
            finally:
                cursor.execute("SELECT pg_advisory_unlock(%s)", [ONE_AT_A_TIME])
