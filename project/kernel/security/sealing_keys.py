"""Files with sealing keys, one key per line. The module imports no Django, because `make dump` and
`make restore` use it.
"""

import base64
import hashlib
import os
import secrets
from collections.abc import Iterable
from pathlib import Path

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
    scratch = write_scratch(path, keys)
    scratch.replace(path)


def write_scratch(path: Path, keys: Iterable[str]) -> Path:
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    scratch = path.with_name(f"{path.name}.{secrets.token_hex(4)}")
    with open(os.open(scratch, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as new:
        new.write("\n".join(keys) + "\n")
        new.flush()
        os.fsync(new.fileno())
    return scratch


def merge_keys(path: Path, more: Iterable[str]) -> int:
    """Appends the keys that the file lacks. Returns their number."""
    present = read_keys(path)
    known = {name_key(key) for key in present}
    added = [key for key in dict.fromkeys(more) if name_key(key) and name_key(key) not in known]
    if added:
        write_keys(path, [*present, *added])
    return len(added)
