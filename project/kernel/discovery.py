"""Modules that fill the kernel's registries, found by their names."""

from importlib import import_module

from django.apps import apps
from django.utils.module_loading import autodiscover_modules


def discover(*names: str) -> None:
    """Import the modules of these names in each app: at its root, and those that its AppConfig
    lists in `discovered`.
    """
    autodiscover_modules(*names)
    for config in apps.get_app_configs():
        for module in getattr(config, "discovered", ()):
            if module.rpartition(".")[2] in names:
                import_module(module)
