"""A process for the runtime's tests with one controller, which logs the begin and the end of each
step.

python -m tests.kernel.controllers.looping_controller SECONDS
"""

import sys
import threading

import django

if __name__ == "__main__":
    django.setup()

from project.kernel.controllers.runtime import Controller, run
from project.kernel.events.log import record


class Slow(Controller):
    name = "slow"
    resync = 1000.0

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds

    def step(self) -> bool:
        record("begin")
        threading.Event().wait(self.seconds)
        record("end")
        return True


if __name__ == "__main__":
    run([Slow(float(sys.argv[1]))])
