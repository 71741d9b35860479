"""The agent from this installation; elsewhere it is one file: /agent/berth-agent.pyz."""

import sys
from argparse import ArgumentParser
from types import SimpleNamespace
from typing import Any

from django.core.management.base import BaseCommand

from slots.agent.cli import add_arguments, start


class Command(BaseCommand):
    help = "Run tasks in the slots of one member."
    requires_system_checks = []

    def add_arguments(self, parser: ArgumentParser) -> None:
        add_arguments(parser)

    def handle(self, *args: Any, **options: Any) -> None:
        sys.exit(start(SimpleNamespace(**options)))
