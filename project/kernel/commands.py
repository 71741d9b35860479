"""What management commands share."""

from collections.abc import Sequence
from typing import Any

from django.core.management.base import BaseCommand, CommandParser

from .runtime import Controller, run


class ControllerCommand(BaseCommand):
    """Runs controllers for ever, or with --once until they have nothing more to do."""

    requires_system_checks = []
    controllers: Sequence[type[Controller]] = ()

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--once", action="store_true", help="do what there is to do, then leave")
        parser.add_argument("--probe", type=int, default=0, metavar="PORT", help="answer /healthz and /metrics on this loopback port")

    def build(self, **options: Any) -> list[Controller]:
        return [controller() for controller in self.controllers]

    def handle(self, *args: Any, **options: Any) -> None:
        run(self.build(**options), once=options["once"], probe_port=options["probe"])
