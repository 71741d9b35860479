"""Celery: workers that perform operations. A message names a queue; what is due there is read
from the database.
"""

import os

from celery import Celery

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "project.settings.local")

app = Celery("berth")
app.config_from_object("django.conf:settings", namespace="CELERY")
app.autodiscover_tasks(["project.kernel.outbox"])
