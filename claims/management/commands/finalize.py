from claims.controllers import Finalizer
from project.kernel.management.base import ControllerCommand


class Command(ControllerCommand):
    help = (
        "Keeps every timer: expiry, leases, drains, lost members, pauses, and what is "
        "kept how long."
    )
    controllers = (Finalizer,)
