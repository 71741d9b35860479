from project.kernel.management.base import ControllerCommand
from project.kernel.outbox.relay import RELAYS


class Command(ControllerCommand):
    help = (
        "Turns what is committed into hints for web processes and workers. Nobody else "
        "publishes to Valkey."
    )
    controllers = RELAYS
