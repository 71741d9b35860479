from claims.controllers import Finalizer
from project.kernel.management.base import ControllerCommand


class Command(ControllerCommand):
    help = "Runs timed work: expiry, leases, drains, lost members, pauses and retention."
    controllers = (Finalizer,)
