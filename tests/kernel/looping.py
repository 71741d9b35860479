"""A process for the runtime's tests: one controller whose step begins, takes its time and ends, each said in the log.

python -m tests.kernel.looping SECONDS
"""

import sys
import threading

import django

if __name__ == "__main__":
    django.setup()

from project.kernel.events import record
from project.kernel.runtime import Controller, run


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
