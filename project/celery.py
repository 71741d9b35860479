"""Celery workers perform operations. A message names a queue; the worker reads the due operations
of that queue from the database.
"""

import os

import django
from celery import Celery
from django.apps import apps
from django.conf import settings

from pools.providers.base import known_providers
from project.kernel.management.startup import collection_paused

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "project.settings.local")

app = Celery("berth")
app.config_from_object("django.conf:settings", namespace="CELERY")
app.autodiscover_tasks()
app.autodiscover_tasks(["project.kernel.outbox"])


def add_queues(sender: Celery, **_: object) -> None:
    """Workers without `-Q` perform the operations of every provider. A provider that cannot be
    loaded stops the worker: Celery would log the error and serve the default queue alone.
    """
    try:
        # A worker reads its settings before Celery sets up Django.
        if not (apps.ready or apps.loading):
            with collection_paused():
                django.setup()
        queues = {provider.queue for provider in known_providers().values()}
    except Exception as error:
        raise SystemExit(f"BERTH_PROVIDERS: {type(error).__name__}: {error}") from error
    names = {*settings.BERTH_QUEUES, *queues}
    sender.conf.task_queues = {
        name: {"exchange": name, "routing_key": name} for name in sorted(names - {""})
    }


assert app.on_after_configure is not None
app.on_after_configure.connect(add_queues)  # Celery has read the settings by then
