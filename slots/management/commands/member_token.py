"""manage.py member_token POOL/MEMBER: creates a token for an agent, with the commands that start
the agent.
"""

from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from pools.lifecycle.selectors import LIVE
from pools.models import Member
from project.kernel.actor import acting_as
from project.kernel.errors import BerthError
from slots.api.agents import build_start_commands, make_token


class Command(BaseCommand):
    help = "Create a token for an agent that is not started by Berth. It is shown only once."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("member", metavar="POOL/MEMBER")
        parser.add_argument(
            "--url",
            default="",
            help="address of Berth for the agent; adds the commands that start the agent",
        )
        parser.add_argument(
            "--ends-previous", action="store_true", help="revoke the previous token now"
        )
        parser.add_argument("--reason", default="")

    def handle(self, *args: object, **options: Any) -> None:
        pool, _, name = options["member"].partition("/")
        member = (
            Member.objects.select_related("pool")
            .filter(LIVE, pool__name=pool, name=name)
            .exclude(pool__state="gone")
            .first()
        )
        if member is None:
            raise CommandError(
                f"There is no member {name or '?'} in a pool {pool}. Write it as POOL/MEMBER."
            )
        with acting_as("system"):
            try:
                secret = make_token(
                    member, reason=options["reason"], ends_previous=options["ends_previous"]
                )
            except BerthError as error:
                raise CommandError(f"{error.detail} {error.way_out}".strip()) from error
        self.stderr.write(
            f"Token of {member.name} in {pool}, incarnation {member.incarnation}, shown only once:"
        )
        self.stdout.write(secret)  # alone on stdout, for scripts
        if options["url"]:
            self.stderr.write(
                "\n".join(build_start_commands(options["url"].rstrip("/") + "/", member, secret))
            )
