from project.kernel.management.base import ControllerCommand
from project.kernel.outbox.relay import RELAYS


class Command(ControllerCommand):
    help = (
        "Sends hints about committed changes to web processes and workers. Only the relay "
        "publishes to Valkey."
    )
    controllers = RELAYS
