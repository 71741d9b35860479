"""Compares the version of an agent with the server's."""

import re

VERSION = re.compile(r"(\d+)\.(\d+)\.(\d+)(?:\+([0-9a-f]+))?")
OLDER, NEWER, OTHER, SAME = "older", "newer", "other", ""


def compare(theirs: str, ours: str) -> str:
    """`theirs` relative to `ours`. OTHER: the same number built from other sources, or a malformed
    version.
    """
    if not theirs or theirs == ours:
        return SAME
    found, known = VERSION.fullmatch(theirs), VERSION.fullmatch(ours)
    if found is None or known is None:
        return OTHER
    numbers, wanted = tuple(map(int, found.group(1, 2, 3))), tuple(map(int, known.group(1, 2, 3)))
    if numbers == wanted:
        return OTHER
    return OLDER if numbers < wanted else NEWER


WORDS = {
    OLDER: "older than the server’s",
    NEWER: "newer than the server’s",
    OTHER: "another build than the server’s",
    SAME: "as the server’s",
}
