"""Encrypts the secrets of pools with the present key, for `manage.py reseal`."""

from collections.abc import Iterator

from pools.models import Secret
from project.kernel.security.encryption import key_id, register_resealer, seal, unseal


@register_resealer("secrets")
def reseal_secrets() -> Iterator[int]:
    """Skips a secret that changed meanwhile, because the change has used the present key."""
    for row in Secret.objects.exclude(key_id=key_id()).order_by("pk").iterator(100):
        again = seal(unseal(bytes(row.ciphertext)))
        yield Secret.objects.filter(pk=row.pk, changed_at=row.changed_at).update(
            ciphertext=again, key_id=key_id()
        )
