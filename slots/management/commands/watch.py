from project.kernel.management.base import ControllerCommand
from slots.sync.watcher import Watcher


class Command(ControllerCommand):
    help = (
        "Compare each provider's objects with the members: gone, back or ready ones are recorded, "
        "and each pool gets the time of its last full look."
    )
    controllers = (Watcher,)
