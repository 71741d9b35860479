import json
import sys
from typing import Any

from django.core.management.base import CommandParser

from project.kernel.actor import acting_as
from project.kernel.db.guards import patient
from project.kernel.discovery import discover
from project.kernel.doctor.registry import Report, examine, list_facts, repair
from project.kernel.management.base import BerthCommand


class Command(BerthCommand):
    help = "Lists broken invariants, their meaning and their repair. Exits with 1 if it finds one."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("ids", nargs="*", metavar="ID", help="only these checks")
        parser.add_argument("--json", action="store_true", help="one object on stdout")
        parser.add_argument(
            "--repair", metavar="ID", help="repair the findings of this check, then check again"
        )

    def handle(self, *args: object, **options: Any) -> None:
        discover("checks")
        with acting_as("doctor"), patient():
            if options["repair"]:
                repaired, _ = repair(options["repair"])
                self.stderr.write(f"{options['repair']}: repaired {repaired}")
            reports = examine([options["repair"]] if options["repair"] else options["ids"])
        if options["json"]:
            result = {
                "ok": not any(r.findings for r in reports),
                "facts": list_facts(),
                "checks": [r.as_dict() for r in reports],
            }
            self.stdout.write(json.dumps(result, indent=1))
        else:
            for text in list_facts():
                self.stdout.write(text)
            self._print(reports)
        if any(r.findings for r in reports):
            sys.exit(1)

    def _print(self, reports: list[Report]) -> None:
        for report in reports:
            if report.findings:
                self.stdout.write(
                    f"{report.check.id}  {report.check.title}: {len(report.findings)} broken"
                )
                self.stdout.write(f"      {report.check.explain}")
            for finding in report.findings[:50]:
                self.stdout.write(f"  - {finding.subject}: {finding.detail}")
                if finding.repair:
                    self.stdout.write(f"    {finding.repair}")
            if len(report.findings) > 50:
                self.stdout.write(f"  ... and {len(report.findings) - 50} more")
        broken = sum(len(r.findings) for r in reports)
        self.stdout.write(
            f"{len(reports)} checks, {broken} findings."
            if broken
            else f"{len(reports)} checks, no findings."
        )
