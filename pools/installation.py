"""What our things are marked with outside. Two installations in one namespace never touch each
other's; a copy of a database that is to live beside the original is told another name
(BERTH_INSTALLATION), else both would think all of it theirs."""

import secrets

from django.conf import settings

from pools.models import Installation


def name_installation() -> str:
    """Drawn once, kept in the database."""
    told: str = getattr(settings, "BERTH_INSTALLATION", "")
    if told:
        return told
    name = Installation.objects.values_list("name", flat=True).first()
    if name is None:
        name = Installation.objects.get_or_create(
            id=1, defaults={"name": f"b{secrets.token_hex(5)}"}
        )[0].name
    return name
