"""`manage.py prepare` prepares the database before the start; `up` runs it first.

The command rejects a database that a newer Berth has changed. It dumps before it migrates, creates
the first user, and loads the sample into a new database. Each step is safe to repeat.
"""

import os
import secrets
from contextlib import suppress
from pathlib import Path
from typing import Any

from django.conf import settings
from django.contrib.auth import get_user_model
from django.contrib.auth.models import AbstractUser
from django.core.management import BaseCommand, CommandError, CommandParser, call_command
from django.db import OperationalError, connection, transaction
from django.db.migrations.executor import MigrationExecutor

from project.kernel.embedded import backup
from project.kernel.security.private_files import write_private
from project.kernel.signals import first_user_made
from project.settings import environment as env

FIRST_USER = "admin"


class Command(BaseCommand):
    help = "Migrate, create the first user, load the sample: all steps before the first start."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument(
            "--embedded",
            action="store_true",
            help="the database is the embedded one: dump before migrating, load the sample",
        )

    def handle(self, *args: object, **options: Any) -> None:
        is_embedded: bool = options["embedded"]
        try:
            connection.ensure_connection()
        except OperationalError as error:
            raise CommandError(
                f"The database does not answer. Check DATABASE_URL. Error: {str(error).strip()}"
            ) from None
        _forget_given_password()
        was_empty = self._migrate(is_embedded)
        if self._make_first_user():
            self.stdout.write("the first user is created")
        if is_embedded and was_empty and env.is_on("BERTH_SAMPLE", True):
            self._load_sample()

    def _migrate(self, is_embedded: bool) -> bool:
        executor = MigrationExecutor(connection)
        known, applied = (
            set(executor.loader.disk_migrations),
            set(executor.loader.applied_migrations),
        )
        ours = {app for app, _ in known}
        if newer := sorted(f"{app}.{name}" for app, name in applied - known if app in ours):
            raise CommandError(_newer(newer))
        pending = executor.migration_plan(executor.loader.graph.leaf_nodes())
        if not pending:
            return False
        if applied and is_embedded:
            folder = Path(settings.BERTH_HOME) / "backups"
            made = backup.dump(env.database_url(), folder, backup.BEFORE_MIGRATION)
            backup.delete_older_dumps(folder)
            self.stdout.write(
                f"Migrations to apply: {len(pending)}. A dump of the database before them is "
                f"{made} (without sealed files, which stay in place)"
            )
        call_command("migrate", verbosity=0, interactive=False)
        return not applied

    def _load_sample(self) -> None:
        """A failure does not prevent the start."""
        try:
            call_command("sample", "load", stdout=self.stdout)
        except CommandError as error:
            self.stderr.write(f"The sample is not loaded: {error}")

    def _make_first_user(self) -> bool:
        """Creates a superuser if no active one exists. A generated password is written to the state
        folder before the user is saved, so that no user has a lost password. A password from
        BERTH_ADMIN_PASSWORD is not written, because its owner knows it.
        """
        model = get_user_model()
        with transaction.atomic():
            if model.objects.filter(is_active=True, is_superuser=True).exists():
                return False
            given = os.environ.get("BERTH_ADMIN_PASSWORD")
            password = given or secrets.token_urlsafe(12)
            if not given:
                write_private(password_file(), f"{password}\n")
            user: AbstractUser = model(username=FIRST_USER, is_staff=True, is_superuser=True)
            user.set_password(password)
            user.save()
            first_user_made.send(sender=Command, user=user)
        return True


def password_file() -> Path:
    return Path(settings.BERTH_HOME) / "admin-password"


def _forget_given_password() -> None:
    """Deletes the password file of earlier versions, which also wrote the password from
    BERTH_ADMIN_PASSWORD.
    """
    given = os.environ.get("BERTH_ADMIN_PASSWORD")
    with suppress(FileNotFoundError):
        if given and password_file().read_text().strip() == given.strip():
            password_file().unlink()


def _newer(names: list[str]) -> str:
    shown = ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
    backups = sorted((Path(settings.BERTH_HOME) / "backups").glob("*.dump"))
    way_back = (
        f"make restore FILE={backups[-1]}"
        if backups
        else "make restore FILE=<a dump made by this version>"
    )
    return (
        f"This database was changed by a newer Berth: it has {shown}, unknown to this version. "
        "Nothing was changed.\nCheck out the newer version and start it (git pull; make up), or "
        f"restore a dump: {way_back}"
    )
