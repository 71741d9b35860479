from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from project.kernel.actor import acting_as
from project.kernel.discovery import discover
from project.kernel.errors import BerthError
from project.kernel.management.base import describe_changes, explain, read_sources, shell_actor
from project.kernel.manifests import (
    apply_documents,
    diff_documents,
    preflight_documents,
    read_files,
)


class Command(BaseCommand):
    help = (
        "Makes the configuration equal to a file. With a fault, it reports all faults and "
        "changes nothing."
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
        parser.add_argument("--dry-run", action="store_true", help="show what would change")
        parser.add_argument("--reason", default="", help="kept with the events")

    def handle(self, *args: object, **options: Any) -> None:
        discover("manifests")
        try:
            with acting_as(shell_actor()):
                documents = read_files(read_sources(options["file"]))
                preflight_documents(documents)
                outcomes = (
                    diff_documents(documents)
                    if options["dry_run"]
                    else apply_documents(documents, options["reason"])
                )
        except BerthError as error:
            raise CommandError(explain(error))
        for line in describe_changes(outcomes):
            self.stdout.write(line)
        changed = sum(bool(o.changes) for o in outcomes)
        self.stdout.write(
            f"{changed} {'would change' if options['dry_run'] else 'changed'}, "
            f"{len(outcomes) - changed} as they are."
        )
