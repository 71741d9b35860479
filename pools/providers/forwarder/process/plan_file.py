"""The plan of a forwarder in its folder. The file changes whole, and only its owner reads it."""

import json
import os
from collections.abc import Mapping
from pathlib import Path

NAME = "plan.json"


def read_file(folder: Path) -> object:
    """Raises FileNotFoundError, OSError or ValueError."""
    return json.loads((folder / NAME).read_bytes())


def write_file(folder: Path, plan: Mapping[str, object]) -> None:
    """Raises OSError; the file is the earlier one then."""
    scratch = folder / f"{NAME}.new"
    with open(os.open(scratch, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as new:
        json.dump(plan, new)
        new.flush()
        os.fsync(new.fileno())
    scratch.replace(folder / NAME)
