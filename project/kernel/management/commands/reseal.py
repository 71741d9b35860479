"""`manage.py reseal`: everything that is sealed, sealed with the present key."""

import time
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError, CommandParser

from project.kernel.db.guards import patient
from project.kernel.discovery import discover
from project.kernel.errors import BerthError
from project.kernel.management.base import explain
from project.kernel.security import encryption

SETTLED = 60.0  # seconds after which every process has read the file anew


class Command(BaseCommand):
    help = (
        "Seals secrets, logs and files anew with the first of the sealing keys. Nothing has to "
        "stop meanwhile."
    )
    requires_system_checks = []

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument(
            "--print-key",
            action="store_true",
            help="make a key for BERTH_SEALING_KEYS, print it, and do no more",
        )
        parser.add_argument(
            "--new-key",
            action="store_true",
            help="put a new key first in the state folder's file; then run it again",
        )
        parser.add_argument(
            "--drop-old",
            action="store_true",
            help=(
                "afterwards, use only the first key of that file; the others move to "
                "sealing-key.dropped"
            ),
        )

    def handle(self, *args: Any, **options: Any) -> None:
        if options["print_key"]:
            self.stdout.write(encryption.make_key())
            return
        try:
            if options["new_key"]:
                self._add_key()
                return
            if options["drop_old"] and (
                settings.BERTH_SEALING_KEYS
                or time.time() - encryption.key_file().stat().st_mtime < SETTLED
            ):
                raise CommandError(
                    "The keys stand in BERTH_SEALING_KEYS: take the old ones out there, once this "
                    "has run without --drop-old. Keep them with your backups: older ones cannot be "
                    "read without them."
                    if settings.BERTH_SEALING_KEYS
                    else (
                        f"The key is too new: until {SETTLED:.0f} s after --new-key some process "
                        "may still seal with the old one."
                    )
                )
            self._reseal()
            if options["drop_old"]:
                dropped = encryption.drop_old_keys()
                self.stdout.write("Only the first key is used from now on.")
                if dropped:
                    self.stdout.write(
                        f"Dumps that are older need the dropped keys: they are in {dropped}. "
                        "Delete it with the last such dump."
                    )
        except BerthError as error:
            raise CommandError(explain(error))

    def _add_key(self) -> None:
        if settings.BERTH_SEALING_KEYS:
            raise CommandError(
                "The keys stand in BERTH_SEALING_KEYS: put the new one first there, and start "
                "every process anew."
            )
        encryption.key_id()  # the file is there from here on
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
                    f"{name}: {sum(resealer())} sealed anew with key {encryption.key_id()}"
                )
