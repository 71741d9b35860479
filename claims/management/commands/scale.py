import json
from typing import Any

from django.core.management.base import CommandError, CommandParser

from claims.controllers import Scaler
from claims.scaling import dry_run, inputs_of
from project.kernel.commands import ControllerCommand, explain
from project.kernel.errors import BerthError


class Command(ControllerCommand):
    help = "Makes as many members as each pool's policy wants, within its limits; --dry-run says what it would do to one pool."
    controllers = (Scaler,)

    def add_arguments(self, parser: CommandParser) -> None:
        super().add_arguments(parser)
        parser.add_argument("--dry-run", metavar="POOL", default="", help="say what would be decided now, change nothing")
        parser.add_argument("--json", action="store_true", help="with --dry-run: all of it, as JSON")

    def handle(self, *args: Any, **options: Any) -> None:
        if not options["dry_run"]:
            super().handle(*args, **options)
            return
        try:
            _, decision = dry_run(options["dry_run"])
        except BerthError as error:
            raise CommandError(explain(error))
        if options["json"]:
            told = {"pool": options["dry_run"], "delta": decision.delta, "reason": decision.reason, **inputs_of(decision)}
            told |= {"chosen": [j._asdict() for j in decision.chosen], "spared": [j._asdict() for j in decision.spared]}
            self.stdout.write(json.dumps(told, indent=2, ensure_ascii=False))
            return
        self.stdout.write(f"{decision.words}: {decision.reason}")
        for check in decision.checks:
            self.stdout.write(f"  {'ok' if check.is_met else 'no'}  {check.text}{f'  ({check.note})' if check.note else ''}")
        for judged, what in (*((j, "goes") for j in decision.chosen), *((j, "stays") for j in decision.spared)):
            self.stdout.write(f"  {what}  {judged.name}: {judged.why}")
