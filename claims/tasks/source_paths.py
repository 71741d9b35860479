"""Paths inside a source. The module uses only the standard library, because the child process that
reads archives imports it.
"""

LONGEST_PATH = 1024
DEEPEST = 64


def why_not_path(path: str) -> str:
    """The fault of a path; empty for a valid path inside the source."""
    parts = path.split("/")
    if {"", ".", ".."} & set(parts) or "\\" in path or not path.isprintable():
        return "This path leads out of the source or is not in its plain form."
    if len(path) > LONGEST_PATH or len(parts) > DEEPEST:
        return "This path is too long."
    return ""
