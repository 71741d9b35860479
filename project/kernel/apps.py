from django.apps import AppConfig
from django.contrib.auth.signals import user_logged_in

from .discovery import discover
from .security.sessions import record_sign_in


class KernelConfig(AppConfig):
    name = "project.kernel"
    label = "kernel"
    verbose_name = "Kernel"
    discovered = (
        "project.kernel.bench.benches",
        "project.kernel.doctor.checks",
        "project.kernel.doctor.table_metrics",
        "project.kernel.events.retention",
    )

    def ready(self) -> None:
        user_logged_in.connect(record_sign_in, dispatch_uid="kernel.sessions")
        # Fills the kernel's registries. The commands doctor, bench and apply fill theirs when they
        # run.
        discover("table_metrics", "performers", "signal_handlers", "retention", "verbs")
