"""manage.py evacuate POOL/MEMBER: evacuates a load balancer, shows the preview or the progress,
undoes the evacuation, or moves a claim back.
"""

from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from claims.ports.evacuation.mover import undo_evacuation
from claims.ports.evacuation.orders import evacuate_member
from claims.ports.evacuation.report import EvacuatedClaim, EvacuationReport, report_evacuation
from claims.ports.evacuation.returns import return_claim
from pools.lifecycle.selectors import LIVE
from pools.models import Member
from project.kernel.actor import acting_as
from project.kernel.errors import BerthError
from project.kernel.ui import formatting


class Command(BaseCommand):
    help = (
        "Move the claims of a load balancer to others, one at a time. Without --reason or --undo: "
        "show what would move, or the progress."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("member", metavar="POOL/MEMBER")
        parser.add_argument("--reason", default="", help="evacuate the member for this reason")
        parser.add_argument("--stays", action="store_true", help="the empty member stays, cordoned")
        parser.add_argument("--undo", action="store_true", help="undo the evacuation")
        parser.add_argument(
            "--return-claims", action="store_true", help="with --undo: moved claims go back, too"
        )
        parser.add_argument(
            "--return-claim", type=int, metavar="CLAIM", help="move this claim back, with --reason"
        )

    def handle(self, *args: object, **options: Any) -> None:
        pool, _, name = options["member"].partition("/")
        member = Member.objects.filter(LIVE, pool__name=pool, name=name).first()
        if member is None:
            raise CommandError(
                f"There is no member {name or '?'} in a pool {pool}. Write it as POOL/MEMBER."
            )
        with acting_as("system"):
            try:
                if options["undo"]:
                    undo_evacuation(
                        member_id=member.pk,
                        reason=options["reason"],
                        returns_claims=options["return_claims"],
                    )
                elif options["return_claim"] is not None:
                    return_claim(
                        member_id=member.pk,
                        claim_id=options["return_claim"],
                        reason=options["reason"],
                    )
                elif options["reason"]:
                    evacuate_member(
                        member_id=member.pk, reason=options["reason"], stays=options["stays"]
                    )
            except BerthError as error:
                raise CommandError(f"{error.detail} {error.way_out}".strip()) from error
        self._show(name, report_evacuation(member.pk, member.pool_id))

    def _show(self, name: str, report: EvacuationReport) -> None:
        total = formatting.plural(report.total, "claim")
        if report.order is None:
            self.stdout.write(f"{name} is not being evacuated. Preview for {total}:")
        else:
            self.stdout.write(f"{name} is being evacuated: {report.moved} of {total} moved.")
        if report.waits_for:
            self.stdout.write(f"Waits for: {report.waits_for}")
        for claim in report.claims:
            self.stdout.write(f"  {_describe(claim)}")


def _describe(claim: EvacuatedClaim) -> str:
    start = f"{claim.id} {claim.owner}, {claim.held}:"
    if claim.place == "stuck":
        return f"{start} cannot move. {claim.reason}. {claim.way_out}"
    if claim.place == "arrived":
        return f"{start} has arrived at {claim.goes_to} and can go back"
    if claim.place == "left":
        return f"{start} waits for its turn"
    return f"{start} {claim.place}{f' to {claim.goes_to}' if claim.to else ''}"
