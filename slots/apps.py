from django.apps import AppConfig
from django.utils.module_loading import autodiscover_modules


class SlotsConfig(AppConfig):
    name = "slots"
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        autodiscover_modules("following")  # it registers itself with pools.services
