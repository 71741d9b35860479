"""The name that marks objects of this installation in outside systems, so that two installations
in one namespace never touch each other's objects.

A copy of a database that runs beside the original needs another name (BERTH_INSTALLATION).
Otherwise both would treat all objects as their own.
"""

import secrets

from django.conf import settings

from pools.models import Installation


def name_installation() -> str:
    """BERTH_INSTALLATION if set, else a random name that the first call stores."""
    configured: str = getattr(settings, "BERTH_INSTALLATION", "")
    if configured:
        return configured
    name = Installation.objects.values_list("name", flat=True).first()
    if name is None:
        name = Installation.objects.get_or_create(
            id=1, defaults={"name": f"b{secrets.token_hex(5)}"}
        )[0].name
    return name
