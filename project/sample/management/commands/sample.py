"""`manage.py sample load|remove|drive`: three pools with live work, for trying Berth."""

import os
import sys
from argparse import ArgumentParser
from typing import Any

from django.core.management import BaseCommand, CommandError

from project.kernel.errors import BerthError
from project.sample.services import load_sample, remove_sample


class Command(BaseCommand):
    help = "Load three sample pools, drive their work, or remove all of the sample."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("what", choices=["load", "remove", "drive"])
        parser.add_argument(
            "--url",
            default="",
            help="address of Berth for `drive`; default: the address in BERTH_HOME",
        )

    def handle(self, *args: Any, **options: Any) -> None:
        if options["what"] == "drive":
            # A process without Django needs a tenth of the memory.
            command = [sys.executable, "-m", "project.sample.driver"]
            command += [options["url"]] if options["url"] else []
            os.execv(sys.executable, command)  # noqa: S606
        try:
            done = load_sample() if options["what"] == "load" else remove_sample()
        except BerthError as error:
            raise CommandError(f"{error.detail} {error.way_out}".strip()) from error
        for line in done:
            self.stdout.write(line)
