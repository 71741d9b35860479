"""`manage.py`, with a plain error instead of a traceback if the database does not answer."""

import gc
import os
import sys

from django.core.management import BaseCommand, ManagementUtility
from django.db import OperationalError

from project.kernel.management.startup import resume_collection
from project.settings import environment as env


class CommandLine(ManagementUtility):
    def fetch_command(self, subcommand: str) -> BaseCommand:
        """The command with all its modules loaded, after which garbage is collected again. Checks
        of the code load every view and would take 40% of the CPU time of a start; CI runs them.
        """
        command = super().fetch_command(subcommand)
        if not type(command).__module__.startswith("django."):
            command.requires_system_checks = []
        resume_collection()
        return command


def main(arguments: list[str]) -> None:
    gc.disable()
    try:
        CommandLine(arguments).execute()
    except OperationalError as error:
        # The server answered, so this is another error.
        if "--traceback" in arguments or getattr(error.__cause__, "sqlstate", None):
            raise
        sys.exit(explain_no_database(str(error).strip()))


def explain_no_database(error: str) -> str:
    if os.environ.get("DATABASE_URL"):
        return (
            "The database of DATABASE_URL does not answer. Start it, or correct DATABASE_URL. "
            f"Error: {error}"
        )
    if env.database_url():
        return (
            f"Berth in {env.home()} does not answer; it may have been killed. Start it: make up. "
            f"Error: {error}"
        )
    return (
        f"Berth does not run in {env.home()}. Start it: make up. If it runs with another state "
        "folder or a database of your own, name that in BERTH_HOME or DATABASE_URL."
    )
