"""`manage.py web`: the web process of a larger installation, behind a proxy that ends TLS."""

from argparse import ArgumentParser
from typing import Any

import uvicorn
from django.core.management.base import BaseCommand

from project.kernel.http.web_server import make_config


class Command(BaseCommand):
    help = "Serve pages, the API and WebSockets."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--host", default="127.0.0.1")
        parser.add_argument("--port", type=int, default=8000)

    def handle(self, **options: Any) -> None:
        uvicorn.Server(
            make_config(host=options["host"], port=options["port"], graceful_shutdown=20)
        ).run()
