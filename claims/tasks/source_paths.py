"""Paths inside a source. Pure, standard library only: the child process that reads archives
imports it.
"""

LONGEST_PATH = 1024
DEEPEST = 64


def why_not_path(path: str) -> str:
    """Empty: it is one that stays inside."""
    parts = path.split("/")
    if (
        not path
        or path.startswith("/")
        or "\\" in path
        or not path.isprintable()
        or ".." in parts
        or "." in parts
        or "" in parts
    ):
        return "This path leads out of the source, or is not written plainly."
    if len(path) > LONGEST_PATH or len(parts) > DEEPEST:
        return "This path is too long."
    return ""
