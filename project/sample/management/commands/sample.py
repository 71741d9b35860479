"""`manage.py sample load|remove|drive`: three pools with live work, to look at and to try
things on.
"""

import os
import sys
from typing import Any

from django.core.management import BaseCommand, CommandError

from project.kernel.errors import BerthError
from project.sample.services import load_sample, remove_sample


class Command(BaseCommand):
    help = "Three sample pools: load them, let a program work in them, or take all of it away."

    def add_arguments(self, parser: Any) -> None:
        parser.add_argument("what", choices=["load", "remove", "drive"])
        parser.add_argument(
            "--url",
            default="",
            help="where Berth answers, for drive; by default what BERTH_HOME says",
        )

    def handle(self, *args: Any, **options: Any) -> None:
        if options["what"] == "drive":
            # The driver speaks HTTP alone: in a process without Django it needs a tenth of
            # the memory.
            os.execv(  # noqa: S606
                sys.executable,
                [
                    sys.executable,
                    "-m",
                    "project.sample.driver",
                    *([options["url"]] if options["url"] else []),
                ],
            )
        try:
            done = load_sample() if options["what"] == "load" else remove_sample()
        except BerthError as error:
            raise CommandError(f"{error.detail} {error.way_out}".strip()) from error
        for line in done:
            self.stdout.write(line)
