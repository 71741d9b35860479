"""Sealing: what is kept at rest so that neither a dump of the database nor a copy of the files
tells it: secrets, logs, saved plans.

Sealed bytes name the key they were sealed with, so a key that is missing is named in the error, and
`manage.py reseal` knows what is left to do. Keys come from BERTH_SEALING_KEYS (the first seals, all
unseal); without it from a file in the state folder, one a line. The file is read again when a key
is not known yet: a rotation needs no restart.
"""

import base64
import os
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from cryptography.fernet import Fernet, InvalidToken, MultiFernet
from django.conf import settings

from project.kernel.errors import BerthError

from .sealing_keys import (
    DROPPED,
    FILE,
    ID_BYTES,
    id_of,
    merge_keys,
    normalise,
    read_keys,
    write_keys,
    write_scratch,
)

MARK = b"B1"
HEAD = len(MARK) + ID_BYTES
# Seconds between two looks whether the file has changed: so soon everybody seals with a new key.
LOOK = 5.0
WAY_OUT = (
    "Set BERTH_SEALING_KEYS to the keys it was sealed with (the first seals; commas between), the "
    "same for every process."
)


class SealError(BerthError):
    """The key is missing, or what was sealed is not what it was."""

    code = "sealed"


@dataclass(frozen=True, slots=True)
class KeyRing:
    """The keys there are; the first one seals."""

    ids: tuple[bytes, ...]
    fernet: MultiFernet

    @classmethod
    def of(cls, texts: list[str]) -> "KeyRing":
        keys = [read_key(text) for text in texts]
        return cls(tuple(id_of(key) for key in keys), MultiFernet([Fernet(key) for key in keys]))


_ring: KeyRing | None = None
_known_by: tuple[object, ...] = ()  # what the ring was made from
_looked_at = 0.0
_lock = threading.Lock()

# Seals anew, a little at a time, whatever an app keeps under an older key; yields how many it did.
Resealer = Callable[[], Iterator[int]]
_resealers: dict[str, Resealer] = {}


def register_resealer(name: str) -> Callable[[Resealer], Resealer]:
    """Register what `manage.py reseal` goes through. Apps do it in `sealing.py`."""

    def register(resealer: Resealer) -> Resealer:
        _resealers[name] = resealer
        return resealer

    return register


def list_resealers() -> list[tuple[str, Resealer]]:
    return sorted(_resealers.items())


def seal(data: bytes) -> bytes:
    ring = _current()
    token = base64.urlsafe_b64decode(ring.fernet.encrypt(data))  # as bytes: a third less to keep
    return MARK + ring.ids[0] + token


def unseal(data: bytes) -> bytes:
    data = bytes(data)
    if len(data) <= HEAD or not data.startswith(MARK):
        raise SealError("This was never sealed here.", way_out="Restore it from a backup.")
    number = data[len(MARK) : HEAD]
    ring = _current()
    if number not in ring.ids:
        ring = _current(is_fresh=True)
    if number not in ring.ids:
        known = ", ".join(key.hex() for key in ring.ids)
        raise SealError(
            f"This was sealed with key {number.hex()}, which is not among the keys here ({known}).",
            way_out=WAY_OUT,
        )
    try:
        return ring.fernet.decrypt(base64.urlsafe_b64encode(data[HEAD:]))
    except InvalidToken:
        raise SealError("What was sealed was changed since.", way_out="Restore it from a backup.")


def key_id() -> str:
    """Of the key that seals."""
    return _current().ids[0].hex()


def key_header() -> bytes:
    """What everything begins with that was sealed with the present key: the rest is to
    be resealed.
    """
    return MARK + _current().ids[0]


def is_current(data: bytes) -> bool:
    return bytes(data[:HEAD]) == key_header()


def make_key() -> str:
    return Fernet.generate_key().decode()


def read_key(text: str) -> bytes:
    """A key as Fernet wants it: 32 bytes in base64."""
    key = normalise(text)
    if key is None:  # the error is without the text, which may be most of a secret
        raise SealError(
            "A sealing key is not 32 bytes in base64.",
            code="bad_sealing_key",
            way_out="Make one with: manage.py reseal --print-key",
        )
    return key


def key_file() -> Path:
    return Path(settings.BERTH_HOME) / FILE


def read_file() -> list[str]:
    return read_keys(key_file())


def write_file(keys: list[str]) -> None:
    """Readable by its owner alone, and there as a whole or not at all."""
    write_keys(key_file(), keys)


def drop_old_keys() -> Path | None:
    """Keep only the key that seals. The others move to a file of their own: older dumps need
    them. None: there were no others.
    """
    first, *others = read_file()
    dropped = key_file().with_name(DROPPED)
    merge_keys(dropped, others)  # before they leave the other file: no key is ever in neither
    write_file([first])
    forget()
    return dropped if others else None


def _make_file() -> list[str]:
    """The first process that needs a key makes it; the others take that one."""
    path = key_file()
    scratch = write_scratch(path, [make_key()])
    try:
        os.link(scratch, path)
    except FileExistsError:
        return read_file()
    finally:
        scratch.unlink()
    return read_file()


def _current(*, is_fresh: bool = False) -> KeyRing:
    global _ring, _known_by, _looked_at
    given = tuple(settings.BERTH_SEALING_KEYS)
    known_by = (given, str(settings.BERTH_HOME))
    is_old = not given and (is_fresh or time.monotonic() - _looked_at > LOOK)
    if _ring is not None and _known_by == known_by and not is_old:
        return _ring
    with _lock:
        texts = list(given) or read_file()
        if not texts and settings.BERTH_MAKES_SEALING_KEY:
            texts = _make_file()
        if not texts:
            raise SealError(
                "There is no sealing key, so nothing secret can be kept or read.",
                code="no_sealing_key",
                way_out=(
                    "Set BERTH_SEALING_KEYS, the same for every process; manage.py reseal "
                    "--print-key makes one."
                ),
            )
        _ring, _known_by, _looked_at = KeyRing.of(texts), known_by, time.monotonic()
        return _ring


def forget() -> None:
    """Keys have changed: read them anew."""
    global _ring
    _ring = None
