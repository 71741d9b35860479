"""Encryption at rest ("sealing") of secrets, logs and saved plans: a dump of the database or a copy
of the files does not reveal them.

Sealed bytes begin with the id of their key, so an error names a missing key, and `manage.py reseal`
finds data under older keys. Keys come from BERTH_SEALING_KEYS (the first seals, all unseal), or
from a file in the state folder with one key per line. An unknown key id makes the process read the
file again, so a rotation needs no restart.
"""

import base64
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from cryptography.fernet import Fernet, InvalidToken, MultiFernet
from django.conf import settings

from project.kernel.errors import BerthError

from .private_files import create_private
from .sealing_keys import (
    DROPPED,
    FILE,
    ID_BYTES,
    id_of,
    merge_keys,
    normalise,
    read_keys,
    write_keys,
)

MARK = b"B1"
HEAD = len(MARK) + ID_BYTES
REREAD = 5.0  # seconds between two reads of the file: all processes then seal with a new key
WAY_OUT = (
    "Set BERTH_SEALING_KEYS to the keys with which the data was sealed (separated by commas; the "
    "first seals), the same for every process."
)


class SealError(BerthError):
    """The key is missing, or the sealed data has changed."""

    code = "sealed"


@dataclass(frozen=True, slots=True)
class KeyRing:
    """All keys; the first seals."""

    ids: tuple[bytes, ...]
    fernet: MultiFernet

    @classmethod
    def of(cls, texts: list[str]) -> "KeyRing":
        keys = [read_key(text) for text in texts]
        return cls(tuple(id_of(key) for key in keys), MultiFernet([Fernet(key) for key in keys]))


_ring: KeyRing | None = None
_ring_settings: tuple[object, ...] = ()  # the settings from which the ring was made
_read_at = 0.0
_lock = threading.Lock()

# Reseals the data of one app under the present key, in batches; yields the size of each batch.
Resealer = Callable[[], Iterator[int]]
_resealers: dict[str, Resealer] = {}


def register_resealer(name: str) -> Callable[[Resealer], Resealer]:
    """Registers a resealer for `manage.py reseal`. Apps do so in `sealing.py`."""

    def register(resealer: Resealer) -> Resealer:
        _resealers[name] = resealer
        return resealer

    return register


def list_resealers() -> list[tuple[str, Resealer]]:
    return sorted(_resealers.items())


def seal(data: bytes) -> bytes:
    ring = _current()
    token = base64.urlsafe_b64decode(ring.fernet.encrypt(data))  # bytes are a quarter smaller
    return MARK + ring.ids[0] + token


def unseal(data: bytes) -> bytes:
    data = bytes(data)
    if len(data) <= HEAD or not data.startswith(MARK):
        raise SealError("The data is not sealed.", way_out="Restore it from a backup.")
    number = data[len(MARK) : HEAD]
    ring = _current()
    if number not in ring.ids:
        ring = _current(is_fresh=True)
    if number not in ring.ids:
        known = ", ".join(key.hex() for key in ring.ids)
        raise SealError(
            f"The data was sealed with key {number.hex()}, which is not configured ({known}).",
            way_out=WAY_OUT,
        )
    try:
        return ring.fernet.decrypt(base64.urlsafe_b64encode(data[HEAD:]))
    except InvalidToken:
        raise SealError("The sealed data was changed.", way_out="Restore it from a backup.")


def key_id() -> str:
    """The id of the key that seals."""
    return _current().ids[0].hex()


def key_header() -> bytes:
    """The first bytes of data sealed with the present key. Other data needs resealing."""
    return MARK + _current().ids[0]


def is_current(data: bytes) -> bool:
    return bytes(data[:HEAD]) == key_header()


def make_key() -> str:
    return Fernet.generate_key().decode()


def read_key(text: str) -> bytes:
    """A key in Fernet's format: 32 bytes in base64."""
    key = normalise(text)
    if key is None:  # the error leaves out the text, which may be most of a secret
        raise SealError(
            "A sealing key is not 32 bytes in base64.",
            code="bad_sealing_key",
            way_out="Create a key with: manage.py reseal --print-key",
        )
    return key


def key_file() -> Path:
    return Path(settings.BERTH_HOME) / FILE


def read_file() -> list[str]:
    return read_keys(key_file())


def write_file(keys: list[str]) -> None:
    """Replaces the file atomically; only its owner can read it."""
    write_keys(key_file(), keys)


def drop_old_keys() -> Path | None:
    """Keeps only the key that seals, and moves the older keys to a second file, because older dumps
    need them. Returns the second file, or None without older keys.
    """
    first, *older = read_file()
    dropped = key_file().with_name(DROPPED)
    merge_keys(dropped, older)  # first: each key is in at least one file at any moment
    write_file([first])
    forget()
    return dropped if older else None


def _current(*, is_fresh: bool = False) -> KeyRing:
    global _ring, _ring_settings, _read_at
    given = tuple(settings.BERTH_SEALING_KEYS)
    ring_settings = (given, str(settings.BERTH_HOME))
    is_old = not given and (is_fresh or time.monotonic() - _read_at > REREAD)
    if _ring is not None and _ring_settings == ring_settings and not is_old:
        return _ring
    with _lock:
        texts = list(given) or read_file()
        if not texts and settings.BERTH_MAKES_SEALING_KEY:
            create_private(key_file(), f"{make_key()}\n")
            texts = read_file()
        if not texts:
            raise SealError(
                "There is no sealing key, so secrets can be neither stored nor read.",
                code="no_sealing_key",
                way_out=(
                    "Set BERTH_SEALING_KEYS, the same for every process; create a key with: "
                    "manage.py reseal --print-key"
                ),
            )
        _ring, _ring_settings, _read_at = KeyRing.of(texts), ring_settings, time.monotonic()
        return _ring


def forget() -> None:
    """Drops the keys in memory, so that the next use reads them again."""
    global _ring
    _ring = None
