"""Which agent a member runs, held against the one that this server gives out. Pure."""

import re

VERSION = re.compile(r"(\d+)\.(\d+)\.(\d+)(?:\+([0-9a-f]+))?")
OLDER, NEWER, OTHER, SAME = "older", "newer", "other", ""


def compare(theirs: str, ours: str) -> str:
    """How theirs is against ours. `other`: of the same number and built from other sources, or
    one that we can't read.
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
