"""Sizes as text: 64kB, 8MB, 2GB. Units are powers of ten. Pure."""

import re

UNITS = {"TB": 10**12, "GB": 10**9, "MB": 10**6, "kB": 10**3, "B": 1}
BY_NAME = {name.lower(): size for name, size in UNITS.items()}
WHOLE = re.compile(r"(\d{1,9}(?:\.\d{1,3})?)([kmgt]?b)", re.IGNORECASE | re.ASCII)


def parse_size(text: str) -> int | None:
    """Bytes; None: not a size. A number without a unit is not accepted, because it could mean bytes
    or megabytes.
    """
    found = WHOLE.fullmatch(text.strip().replace(" ", ""))
    return None if found is None else round(float(found[1]) * BY_NAME[found[2].lower()])


def format_size(size: int) -> str:
    """The shortest text that parses to the same."""
    for name, unit in UNITS.items():
        if size >= unit and size * 1000 % unit == 0:
            number = size / unit
            return f"{number:.3f}".rstrip("0").rstrip(".") + name
    return f"{size}B"
