"""`manage.py reseal`: encrypt all sealed data with the current key."""

import time
from typing import Any

from django.conf import settings
from django.core.management.base import CommandError, CommandParser

from project.kernel.db.guards import patient
from project.kernel.discovery import discover
from project.kernel.management.base import BerthCommand
from project.kernel.security import encryption

SETTLED = 60.0  # seconds after which every process has read the changed file


class Command(BerthCommand):
    help = "Encrypts secrets, logs and files with the first of the sealing keys, while Berth runs."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument(
            "--print-key",
            action="store_true",
            help="only print a new key for BERTH_SEALING_KEYS",
        )
        parser.add_argument(
            "--new-key",
            action="store_true",
            help="put a new key first in the state folder's file; then run the command again",
        )
        parser.add_argument(
            "--drop-old",
            action="store_true",
            help=(
                "afterwards, use only the first key of that file; the others move to "
                "sealing-key.dropped"
            ),
        )

    def handle(self, *args: object, **options: Any) -> None:
        if options["print_key"]:
            self.stdout.write(encryption.make_key())
            return
        if options["new_key"]:
            self._add_key()
            return
        if options["drop_old"] and (
            settings.BERTH_SEALING_KEYS
            or time.time() - encryption.key_file().stat().st_mtime < SETTLED
        ):
            raise CommandError(
                "The keys are in BERTH_SEALING_KEYS: remove the old keys there, after this "
                "command has run without --drop-old. Keep them with your backups: older "
                "backups cannot be read without them."
                if settings.BERTH_SEALING_KEYS
                else (
                    f"The key is too new: for {SETTLED:.0f} s after --new-key a process may "
                    "still seal with the old key."
                )
            )
        self._reseal()
        if options["drop_old"]:
            dropped = encryption.drop_old_keys()
            self.stdout.write("Only the first key is used from now on.")
            if dropped:
                self.stdout.write(
                    f"Older dumps need the dropped keys, which are in {dropped}. Delete that "
                    "file with the last such dump."
                )

    def _add_key(self) -> None:
        if settings.BERTH_SEALING_KEYS:
            raise CommandError(
                "The keys are in BERTH_SEALING_KEYS: put the new key first there, and restart all "
                "processes."
            )
        encryption.key_id()  # creates the file
        encryption.write_file([encryption.make_key(), *encryption.read_file()])
        encryption.forget()
        self.stdout.write(
            f"Key {encryption.key_id()} seals from now on. In {SETTLED:.0f} s run: manage.py "
            "reseal --drop-old"
        )

    def _reseal(self) -> None:
        discover("sealing")
        with patient():
            for name, resealer in encryption.list_resealers():
                self.stdout.write(
                    f"{name}: {sum(resealer())} resealed with key {encryption.key_id()}"
                )
