"""manage.py confirm_place POOL: confirms the present place of a pool, after the place of its
members was lost or given up.
"""

from argparse import ArgumentParser

from django.core.management.base import BaseCommand, CommandError

from pools.lifecycle.selectors import LIVE
from pools.models import Pool
from project.kernel.actor import acting_as
from project.kernel.management.base import shell_actor
from slots.members.provider_status import confirm_place


class Command(BaseCommand):
    help = (
        "Confirm that a pool's provider looks at the right place. With the next look, members that "
        "were created elsewhere count as gone."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("pool", metavar="POOL")
        parser.add_argument("--reason", required=True, help="recorded in the event log")

    def handle(self, *args: object, **options: str) -> None:
        pool = Pool.objects.filter(LIVE, name=options["pool"]).first()
        if pool is None:
            raise CommandError(f"There is no pool {options['pool']}.")
        with acting_as(shell_actor()):
            if not confirm_place(pool_id=pool.pk, reason=options["reason"]):
                raise CommandError(
                    f"The place of {pool.name} is not known yet, so it cannot be confirmed."
                )
        self.stdout.write(
            f"The next look, within a minute, records the place of {pool.name}. Members that are "
            "not there are gone, and their claims are lost."
        )
