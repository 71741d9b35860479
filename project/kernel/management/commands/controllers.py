from django.conf import settings
from django.core.management.base import CommandParser
from django.utils.module_loading import import_string

from project.kernel.controllers.runtime import Controller
from project.kernel.management.base import ControllerCommand
from project.kernel.outbox.performer import Performer
from project.kernel.outbox.relay import RELAYS


class Command(ControllerCommand):
    help = "Runs all controllers and the relay in one process, each in a thread."

    def add_arguments(self, parser: CommandParser) -> None:
        super().add_arguments(parser)
        parser.add_argument(
            "--perform", action="store_true", help="also perform operations here, without Celery"
        )

    def build(self, **options: object) -> list[Controller]:
        kinds: list[type[Controller]] = [import_string(name) for name in settings.BERTH_CONTROLLERS]
        kinds += [Performer] if options["perform"] else []
        kinds += RELAYS
        return [kind() for kind in kinds]
