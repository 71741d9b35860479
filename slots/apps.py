from importlib import import_module

from django.apps import AppConfig


class SlotsConfig(AppConfig):
    name = "slots"
    default_auto_field = "django.db.models.BigAutoField"
    discovered = (
        "slots.doctor.checks",
        "slots.doctor.table_metrics",
        "slots.members.chores",
        "slots.sync.performers",
    )

    def ready(self) -> None:
        # The module registers itself with pools.lifecycle.services.
        import_module("slots.members.apply_config")
