"""Files that only their owner can read, at any moment. Standard library only, because `up` runs
without Django.
"""

import os
import secrets
from contextlib import suppress
from pathlib import Path


def write_private(path: Path, text: str) -> None:
    """Replaces the file atomically."""
    _write_scratch(path, text).replace(path)


def create_private(path: Path, text: str) -> None:
    """Creates the file, unless another process has just created it."""
    scratch = _write_scratch(path, text)
    try:
        with suppress(FileExistsError):
            os.link(scratch, path)  # the file appears whole
    finally:
        scratch.unlink()  # also on a file system without links: it holds a key


def read_secret(path: Path, size: int) -> str:
    """The random secret in the file, which the first call creates."""
    if not path.exists():
        create_private(path, secrets.token_urlsafe(size))
    return path.read_text().strip()


def _write_scratch(path: Path, text: str) -> Path:
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    scratch = path.with_name(f"{path.name}.{secrets.token_hex(4)}")
    with open(os.open(scratch, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as new:
        new.write(text)
        new.flush()
        os.fsync(new.fileno())
    return scratch
