from claims.controllers import Allocator
from project.kernel.management.base import ControllerCommand


class Command(ControllerCommand):
    help = "Binds waiting claims to free slots, in the order of their turns."
    controllers = (Allocator,)
