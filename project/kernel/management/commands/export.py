from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from project.kernel.db.guards import patient
from project.kernel.discovery import discover
from project.kernel.errors import BerthError
from project.kernel.management.base import explain
from project.kernel.manifests import export_documents


class Command(BaseCommand):
    help = "Writes the configuration as a file that `apply` accepts."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("kind", nargs="?", default="", help="only this kind, for example pool")
        parser.add_argument("names", nargs="*", metavar="NAME", help="only these")

    def handle(self, *args: object, **options: Any) -> None:
        discover("manifests")
        try:
            with patient():
                text = export_documents(options["kind"], options["names"])
        except BerthError as error:
            raise CommandError(explain(error))
        self.stdout.write(text, ending="")
