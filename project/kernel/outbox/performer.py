"""Performs operations without Celery, for tests and for one process that does everything."""

from project.kernel.controllers.runtime import Controller

from .operations import list_due_queues, perform_due, release_interrupted


class Performer(Controller):
    name = "perform"
    topics = ("operations",)
    resync = 1.0

    def step(self) -> bool:
        release_interrupted()
        return sum(perform_due(queue) for queue in list_due_queues()) > 0
