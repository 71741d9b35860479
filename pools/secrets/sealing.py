"""What pools keep sealed, for `manage.py reseal`: their secrets."""

from collections.abc import Iterator

from pools.models import Secret
from project.kernel.security.encryption import key_id, register_resealer, seal, unseal


@register_resealer("secrets")
def reseal_secrets() -> Iterator[int]:
    """One that is set anew meanwhile is sealed with the present key anyway, and left alone."""
    for row in Secret.objects.exclude(key_id=key_id()).order_by("pk").iterator(100):
        again = seal(unseal(bytes(row.ciphertext)))
        yield Secret.objects.filter(pk=row.pk, changed_at=row.changed_at).update(
            ciphertext=again, key_id=key_id()
        )
