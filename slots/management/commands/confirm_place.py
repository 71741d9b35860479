"""manage.py confirm_place POOL: the place where the pool's members were made is gone for good,
or they were lost when it was left.
"""

from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from pools.lifecycle.selectors import LIVE
from pools.models import Pool
from project.kernel.actor import acting_as
from project.kernel.management.base import shell_actor
from slots.members.provider_status import confirm_place


class Command(BaseCommand):
    help = (
        "Take the place where a pool's provider looks now for the right one. What was made "
        "elsewhere is called gone with the next look."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("pool", metavar="POOL")
        parser.add_argument("--reason", required=True, help="it stands in the events")

    def handle(self, *args: Any, **options: Any) -> None:
        pool = Pool.objects.filter(LIVE, name=options["pool"]).first()
        if pool is None:
            raise CommandError(f"There is no pool {options['pool']}.")
        with acting_as(shell_actor()):
            if not confirm_place(pool_id=pool.pk, reason=options["reason"]):
                raise CommandError(
                    f"Nobody knows yet where {pool.name} is: there is nothing to confirm."
                )
        self.stdout.write(
            f"The next look, within a minute, says where {pool.name} is. What is not there is "
            "gone, and its claims are lost."
        )
