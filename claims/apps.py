from django.apps import AppConfig


class ClaimsConfig(AppConfig):
    name = "claims"
    default_auto_field = "django.db.models.BigAutoField"
    discovered = (
        "claims.allocation.queues.table_metrics",
        "claims.tasks.files.sealing",
    )
