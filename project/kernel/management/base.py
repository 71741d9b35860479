"""Shared code of management commands."""

import getpass
import json
import logging
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from project.kernel.controllers.probe import default_port
from project.kernel.controllers.runtime import Controller, run
from project.kernel.discovery import discover
from project.kernel.errors import BerthError, FieldError, Invalid
from project.kernel.manifests import ApplyResult, Document, read_files

logger = logging.getLogger(__name__)


class BerthCommand(BaseCommand):
    """Reports a BerthError as text, without a traceback."""

    fault_code = 1  # the exit code after an error

    def execute(self, *args: Any, **options: Any) -> str | None:
        try:
            return super().execute(*args, **options)
        except BerthError as error:
            raise CommandError(explain(error), returncode=self.fault_code)


class ManifestCommand(BerthCommand):
    """A command that reads configuration files."""

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument(
            "-f",
            "--file",
            required=True,
            action="append",
            metavar="FILE",
            help="YAML; - is standard input",
        )

    def read_documents(self, options: dict[str, Any]) -> list[Document]:
        discover("manifests")
        return read_files(read_sources(options["file"]))

    def print_changes(self, outcomes: Sequence[ApplyResult]) -> int:
        """The number of documents with changes."""
        for line in describe_changes(outcomes):
            self.stdout.write(line)
        return sum(bool(outcome.changes) for outcome in outcomes)


class ControllerCommand(BerthCommand):
    """Runs controllers for ever, or with --once until they have no more work."""

    controllers: Sequence[type[Controller]] = ()

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--once", action="store_true", help="do all due work, then exit")
        parser.add_argument(
            "--standby",
            type=int,
            metavar="FD",
            help="prepare, then wait for a byte from this file descriptor",
        )
        parser.add_argument(
            "--probe",
            type=int,
            default=default_port(),
            metavar="PORT",
            help=(
                "answer /healthz, /readyz and /metrics on this port of BERTH_PROBE_BIND (default: "
                "BERTH_PROBE_PORT)"
            ),
        )

    def build(self, **options: object) -> list[Controller]:
        return [controller() for controller in self.controllers]

    def handle(self, *args: object, **options: Any) -> None:
        controllers = self.build(**options)
        if options["standby"] is not None:
            logger.info("standing by for the active process")
            if not os.read(options["standby"], 1):
                return  # the supervisor has ended
        run(controllers, once=options["once"], probe_port=options["probe"])


def shell_actor() -> str:
    """The actor of events that a command writes: the user of the shell."""
    try:
        return f"shell:{getpass.getuser()}"
    except (KeyError, OSError):  # a container's user without a name
        return f"shell:{os.getuid()}"


def explain(error: BerthError) -> str:
    """All faults, one per line, each with its way out."""
    if not error.fields:
        return f"{error.detail} {error.way_out}".strip()
    lines = [f"{f.field}: {f.message} {f.way_out}".strip() for f in error.fields]
    return "\n".join(
        [
            f"{len(lines)} faults, nothing was changed:"
            if len(lines) > 1
            else "Nothing was changed:",
            *lines,
        ]
    )


def read_sources(paths: Sequence[str]) -> list[tuple[str, str]]:
    """Texts and their names. Raises Invalid with all unreadable files."""
    found, faults = [], []
    for path in paths:
        try:
            found.append((sys.stdin.read() if path == "-" else Path(path).read_text(), path))
        except (OSError, UnicodeDecodeError) as error:
            faults.append(FieldError(path, f"The file cannot be read: {error}"))
    if faults:
        raise Invalid(fields=faults)
    return found


def describe_changes(outcomes: Sequence[ApplyResult]) -> list[str]:
    lines = []
    for outcome in outcomes:
        what = f"{outcome.document.kind.name} {outcome.document.name}"
        if not outcome.changes:
            lines.append(f"  {what}: as it is")
        for change in outcome.changes:
            sign = "+" if change.before is None else "-" if change.after is None else "~"
            field = f"{what}: {change.field}" if change.field else what
            values = _short(change.after if change.before is None else change.before)
            lines.append(
                f"{sign} {field}: {values}" + (f" -> {_short(change.after)}" if sign == "~" else "")
            )
    return lines


def _short(value: object) -> str:
    return (
        value
        if isinstance(value, str) and value
        else json.dumps(value, default=str, ensure_ascii=False)
    )
