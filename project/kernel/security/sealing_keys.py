"""Files with sealing keys, one key per line. The module imports no Django, because `make dump` and
`make restore` use it.
"""

import base64
import hashlib
from collections.abc import Iterable
from pathlib import Path

from .private_files import write_private

FILE = "sealing-key"  # in the state folder; the first key seals, all unseal
DROPPED = "sealing-key.dropped"  # in the same folder: keys that only older dumps need
ID_BYTES = 4


def normalise(text: str) -> bytes | None:
    """A key in Fernet's format, 32 bytes in base64; None if the text is no key."""
    try:
        if len(base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))) == 32:
            return text.rstrip("=").encode() + b"="
    except ValueError:
        pass
    return None


def id_of(key: bytes) -> bytes:
    return hashlib.sha256(b"berth sealing key " + key).digest()[:ID_BYTES]


def name_key(text: str) -> str:
    """The id of a key, as in errors and sealed data; empty if the text is no key."""
    key = normalise(text)
    return id_of(key).hex() if key else ""


def read_keys(path: Path) -> list[str]:
    try:
        return [line.strip() for line in path.read_text().splitlines() if line.strip()]
    except FileNotFoundError:
        return []


def write_keys(path: Path, keys: Iterable[str]) -> None:
    """Replaces the file atomically; only its owner can read it."""
    write_private(path, "\n".join(keys) + "\n")


def merge_keys(path: Path, more: Iterable[str]) -> int:
    """Appends the keys that the file lacks. Returns their number."""
    present = read_keys(path)
    known = {name_key(key) for key in present}
    added = [key for key in dict.fromkeys(more) if name_key(key) and name_key(key) not in known]
    if added:
        write_keys(path, [*present, *added])
    return len(added)
