"""Runs the agent of this installation. Other machines use the one file /agent/berth-agent.pyz."""

import sys
from argparse import ArgumentParser, Namespace

from django.core.management.base import BaseCommand

from slots.agent.cli import add_arguments, start


class Command(BaseCommand):
    help = "Run tasks in the slots of one member."

    def add_arguments(self, parser: ArgumentParser) -> None:
        add_arguments(parser)

    def handle(self, *args: object, **options: object) -> None:
        sys.exit(start(Namespace(**options)))
