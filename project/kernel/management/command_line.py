"""`manage.py`, with a plain error instead of a traceback if the database does not answer."""

import os
import sys

from django.core.management import execute_from_command_line
from django.db import OperationalError

from project.settings import environment as env


def main(arguments: list[str]) -> None:
    try:
        execute_from_command_line(arguments)
    except OperationalError as error:
        # The server answered, so this is another error.
        if "--traceback" in arguments or getattr(error.__cause__, "sqlstate", None):
            raise
        sys.exit(explain_no_database(str(error).strip()))


def explain_no_database(said: str) -> str:
    if os.environ.get("DATABASE_URL"):
        return (
            "The database of DATABASE_URL does not answer. Start it, or correct DATABASE_URL. "
            f"It said: {said}"
        )
    if env.database_url():
        return (
            f"Berth in {env.home()} does not answer; it may have been killed. Start it: make up. "
            f"Its database said: {said}"
        )
    return (
        f"Berth does not run in {env.home()}. Start it: make up. If it runs with another state "
        "folder or a database of your own, name that in BERTH_HOME or DATABASE_URL."
    )
