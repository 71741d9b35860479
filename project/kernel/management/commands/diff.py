import sys
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from project.kernel.discovery import discover
from project.kernel.errors import BerthError
from project.kernel.management.base import describe_changes, explain, read_sources
from project.kernel.manifests import diff_documents, read_files


class Command(BaseCommand):
    help = (
        "Shows what applying a file would change. Exits with 0 without a change, with 1 with a "
        "change, with 2 on a fault."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument(
            "-f",
            "--file",
            required=True,
            action="append",
            metavar="FILE",
            help="YAML; - is standard input",
        )

    def handle(self, *args: object, **options: Any) -> None:
        discover("manifests")
        try:
            outcomes = diff_documents(read_files(read_sources(options["file"])))
        except BerthError as error:
            raise CommandError(explain(error), returncode=2)
        for line in describe_changes(outcomes):
            self.stdout.write(line)
        if any(o.changes for o in outcomes):
            sys.exit(1)
