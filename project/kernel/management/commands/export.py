from typing import Any

from django.core.management.base import CommandParser

from project.kernel.db.guards import patient
from project.kernel.discovery import discover
from project.kernel.management.base import BerthCommand
from project.kernel.manifests import export_documents


class Command(BerthCommand):
    help = "Writes the configuration as a file that `apply` accepts."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("kind", nargs="?", default="", help="only this kind, for example pool")
        parser.add_argument("names", nargs="*", metavar="NAME", help="only these")

    def handle(self, *args: object, **options: Any) -> None:
        discover("manifests")
        with patient():
            text = export_documents(options["kind"], options["names"])
        self.stdout.write(text, ending="")
