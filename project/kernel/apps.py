from django.apps import AppConfig
from django.contrib.auth.signals import user_logged_in
from django.utils.module_loading import autodiscover_modules

from .sessions import note_sign_in


class KernelConfig(AppConfig):
    name = "project.kernel"
    label = "kernel"
    verbose_name = "Kernel"

    def ready(self) -> None:
        user_logged_in.connect(note_sign_in, dispatch_uid="kernel.sessions")
        # What each app adds to the kernel's registries. Those of doctor, bench and apply are looked for when they run.
        autodiscover_modules("measures", "performers", "receivers", "retention")
