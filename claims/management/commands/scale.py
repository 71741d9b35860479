import json
import sys
from pathlib import Path
from typing import Any

from django.core.management.base import CommandError, CommandParser

from claims.controllers import Scaler
from claims.scaling.replay import figures_of, outcomes_of, read_changes, replay_pool, table_of
from claims.scaling.scaler import dry_run, inputs_of
from pools.lifecycle.selectors import get_pool
from project.kernel.management.base import ControllerCommand


class Command(ControllerCommand):
    help = (
        "Scales each pool to the number of members that its policy wants, within its limits. "
        "--dry-run shows the decision for one pool, --replay the decisions over past demand."
    )
    controllers = (Scaler,)

    def add_arguments(self, parser: CommandParser) -> None:
        super().add_arguments(parser)
        parser.add_argument(
            "--dry-run",
            metavar="POOL",
            default="",
            help="show the decision for this pool without a change",
        )
        parser.add_argument(
            "--replay",
            metavar="POOL",
            default="",
            help="show the decisions for this pool over its recorded demand",
        )
        parser.add_argument(
            "--days", type=float, default=7.0, help="with --replay: number of days, up to 7"
        )
        parser.add_argument(
            "--with",
            dest="changes",
            metavar="FILE",
            default="",
            help="with --replay: scaling and members to try, - for stdin",
        )
        parser.add_argument(
            "--json", action="store_true", help="with --dry-run or --replay: the result as JSON"
        )

    def handle(self, *args: object, **options: Any) -> None:
        if not options["dry_run"] and not options["replay"]:
            super().handle(*args, **options)
            return
        if options["replay"]:
            self.replay(options)
        else:
            self.dry_run(options)

    def replay(self, options: dict[str, Any]) -> None:
        changes = (
            read_changes(self.read_file(options["changes"]), options["changes"])
            if options["changes"]
            else None
        )
        found = replay_pool(get_pool(options["replay"]), days=options["days"], changes=changes)
        columns = outcomes_of(found)
        if options["json"]:
            report = {
                "pool": found.pool.name,
                "days": found.days,
                "minutes": found.minutes,
                "ready_after_s": found.ready_after,
            }
            report |= {name: figures_of(outcome) for name, outcome in columns.items()}
            self.stdout.write(json.dumps(report, indent=2))
            return
        if not found.minutes:
            raise CommandError("Nothing is recorded yet. Samples are taken every minute.")
        self.stdout.write(
            f"{found.pool.name}: {found.minutes:,} minutes recorded, a new member is there after "
            f"{found.ready_after:.0f} s"
        )
        self.stdout.write(" " * 26 + "".join(f"{name:>14}" for name in columns))
        for label, cells in table_of(found):
            self.stdout.write(f"{label:<26}" + "".join(f"{cell:>14}" for cell in cells))

    def read_file(self, name: str) -> str:
        try:
            return sys.stdin.read() if name == "-" else Path(name).read_text()
        except (OSError, UnicodeDecodeError) as error:
            raise CommandError(f"{name} can't be read: {error}") from None

    def dry_run(self, options: dict[str, Any]) -> None:
        _, decision = dry_run(options["dry_run"])
        if options["json"]:
            report = {
                "pool": options["dry_run"],
                "delta": decision.delta,
                "reason": decision.reason,
                **inputs_of(decision),
            }
            report |= {
                "chosen": [j._asdict() for j in decision.chosen],
                "spared": [j._asdict() for j in decision.spared],
            }
            self.stdout.write(json.dumps(report, indent=2, ensure_ascii=False))
            return
        self.stdout.write(f"{decision.words}: {decision.reason}")
        for check in decision.checks:
            self.stdout.write(
                f"  {'ok' if check.is_met else 'no'}  "
                f"{check.text}{f'  ({check.note})' if check.note else ''}"
            )
        for judged, what in (
            *((j, "goes") for j in decision.chosen),
            *((j, "stays") for j in decision.spared),
        ):
            self.stdout.write(f"  {what}  {judged.name}: {judged.why}")
