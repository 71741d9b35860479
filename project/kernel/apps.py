from django.apps import AppConfig
from django.contrib.auth.signals import user_logged_in

from .sessions import note_sign_in


class KernelConfig(AppConfig):
    name = "project.kernel"
    label = "kernel"
    verbose_name = "Kernel"

    def ready(self) -> None:
        user_logged_in.connect(note_sign_in, dispatch_uid="kernel.sessions")
