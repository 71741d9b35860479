"""manage.py forget_member POOL/MEMBER: ends a member that its provider can no longer confirm as
gone, for example because its cluster was deleted.
"""

from argparse import ArgumentParser

from django.core.management.base import BaseCommand, CommandError

from pools.lifecycle.selectors import LIVE
from pools.models import Member
from project.kernel.actor import acting_as
from project.kernel.management.base import shell_actor
from slots.members import members_sql
from slots.members.provider_status import forget_member


class Command(BaseCommand):
    help = (
        "End a member that is being removed without confirmation by its provider. Objects that "
        "still exist outside are left there."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("member", metavar="POOL/MEMBER")
        parser.add_argument("--reason", required=True, help="recorded in the event log")

    def handle(self, *args: object, **options: str) -> None:
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
                    f"{name} is {member.state}. Remove it first: only a member that is being "
                    "removed can be forgotten."
                )
        if lost:
            self.stdout.write(
                f"The only copy of the Terraform state of claim {', '.join(lost)} is lost."
            )
        self.stdout.write(
            f"{name} of {pool} is forgotten. If its cluster comes back, the next look removes its "
            "remaining objects there."
        )
