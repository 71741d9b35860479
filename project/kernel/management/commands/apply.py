from typing import Any

from django.core.management.base import CommandParser

from project.kernel.actor import acting_as
from project.kernel.management.base import ManifestCommand, shell_actor
from project.kernel.manifests import apply_documents, diff_documents, preflight_documents


class Command(ManifestCommand):
    help = (
        "Makes the configuration equal to a file. With a fault, it reports all faults and "
        "changes nothing."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        super().add_arguments(parser)
        parser.add_argument("--dry-run", action="store_true", help="show what would change")
        parser.add_argument("--reason", default="", help="kept with the events")

    def handle(self, *args: object, **options: Any) -> None:
        with acting_as(shell_actor()):
            documents = self.read_documents(options)
            preflight_documents(documents)
            outcomes = (
                diff_documents(documents)
                if options["dry_run"]
                else apply_documents(documents, options["reason"])
            )
        changed = self.print_changes(outcomes)
        self.stdout.write(
            f"{changed} {'would change' if options['dry_run'] else 'changed'}, "
            f"{len(outcomes) - changed} as they are."
        )
