"""Performs operations without Celery: for tests, and where one process is to do it all."""

from project.kernel.controllers.runtime import Controller

from .operations import list_due_queues, perform_due


class Performer(Controller):
    name = "perform"
    topics = ("operations",)
    resync = 1.0

    def step(self) -> bool:
        return sum(perform_due(queue) for queue in list_due_queues()) > 0
