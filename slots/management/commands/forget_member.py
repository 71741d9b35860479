"""manage.py forget_member POOL/MEMBER: for what is to go where nobody can confirm it any more,
because its cluster is gone for good.
"""

from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from pools.lifecycle.selectors import LIVE
from pools.models import Member
from project.kernel.actor import acting_as
from project.kernel.management.base import shell_actor
from slots.members import members_sql
from slots.members.provider_status import forget_member


class Command(BaseCommand):
    help = (
        "End a member that is being removed without the word of its provider. What of it is still "
        "there is left there."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("member", metavar="POOL/MEMBER")
        parser.add_argument("--reason", required=True, help="it stands in the events")

    def handle(self, *args: Any, **options: Any) -> None:
        pool, _, name = options["member"].partition("/")
        member = (
            Member.objects.filter(LIVE, pool__name=pool, name=name)
            .exclude(pool__state="gone")
            .first()
        )
        if member is None:
            raise CommandError(
                f"There is no member {name or '?'} in a pool {pool}. Write it as POOL/MEMBER."
            )
        lost = [str(row.claim_id) for row in members_sql.unsaved_of(members=[member.pk])]
        with acting_as(shell_actor()):
            if not forget_member(member_id=member.pk, reason=options["reason"]):
                raise CommandError(
                    f"{name} is {member.state}. Remove it first: only what is being "
                    "removed is forgotten."
                )
        if lost:
            self.stdout.write(
                f"Lost with it: the only copy of the Terraform state of claim {', '.join(lost)}."
            )
        self.stdout.write(
            f"{name} of {pool} is forgotten. If its cluster comes back, what is left of it there "
            "is removed with the next look."
        )
