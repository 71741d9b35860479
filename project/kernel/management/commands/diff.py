import sys
from typing import Any

from project.kernel.management.base import ManifestCommand
from project.kernel.manifests import diff_documents


class Command(ManifestCommand):
    help = (
        "Shows what applying a file would change. Exits with 0 without a change, with 1 with a "
        "change, with 2 on a fault."
    )
    fault_code = 2

    def handle(self, *args: object, **options: Any) -> None:
        if self.print_changes(diff_documents(self.read_documents(options))):
            sys.exit(1)
