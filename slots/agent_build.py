"""Builds the one-file agent: `make agent`, or `python -m slots.agent_build FILE`. Equal sources
produce equal bytes. Needs no Django.
"""

import functools
import hashlib
import io
import stat
import sys
import zipfile
from pathlib import Path
from typing import NamedTuple

SOURCE = Path(__file__).parent / "agent"
PACKAGE = "berth_agent"
NAME = "berth-agent.pyz"
SHEBANG = b"#!/usr/bin/env python3\n"
LONG_AGO = (1980, 1, 1, 0, 0, 0)
START = f"import sys\n\nfrom {PACKAGE}.cli import main\n\nsys.exit(main())\n"


class OneFile(NamedTuple):
    data: bytes
    digest: str


@functools.cache
def build_agent() -> OneFile:
    buffer = io.BytesIO()
    buffer.write(SHEBANG)
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as packed:
        add(packed, "__main__.py", START.encode())
        for path in sorted(SOURCE.rglob("*.py")):
            add(packed, f"{PACKAGE}/{path.relative_to(SOURCE).as_posix()}", path.read_bytes())
    data = buffer.getvalue()
    return OneFile(data, hashlib.sha256(data).hexdigest())


def add(packed: zipfile.ZipFile, name: str, data: bytes) -> None:
    entry = zipfile.ZipInfo(name, LONG_AGO)
    entry.compress_type = zipfile.ZIP_DEFLATED
    entry.external_attr = 0o644 << 16
    packed.writestr(entry, data)


def main(argv: list[str]) -> int:
    target = Path(argv[0] if argv else f"dist/{NAME}")
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_bytes(build_agent().data)
    target.chmod(target.stat().st_mode | stat.S_IXUSR | stat.S_IXGRP | stat.S_IXOTH)
    sys.stdout.write(f"{target}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
