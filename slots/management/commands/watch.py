from project.kernel.management.base import ControllerCommand
from slots.sync.watcher import Watcher


class Command(ControllerCommand):
    help = (
        "Looks at what each provider sees: members that vanished, came back or are ready; stamps "
        "each pool after a full look."
    )
    controllers = (Watcher,)
