"""`manage.py sample load|remove|drive`: pools with live work, for trying Berth."""

import os
import sys
from argparse import ArgumentParser
from typing import Any

from project.kernel.management.base import BerthCommand
from project.sample.services import load_sample, remove_sample


class Command(BerthCommand):
    help = "Load the sample pools, drive their work, or remove all of the sample."

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
        for line in load_sample().lines if options["what"] == "load" else remove_sample():
            self.stdout.write(line)
