from django.apps import AppConfig


class KernelConfig(AppConfig):
    name = "project.kernel"
    label = "kernel"
    verbose_name = "Kernel"
