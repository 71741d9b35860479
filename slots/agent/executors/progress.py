"""Reads from Terraform's output which changes of an apply are done, under way or failed."""

from __future__ import annotations

import re
from typing import Mapping

from .outcome import ANSI, FRAME

BEGUN = re.compile(r"(?P<address>\S.*?): (?P<verb>Creating|Modifying|Destroying|Importing)\.\.\.")
DONE = re.compile(r"(?P<address>\S.*?): (?:Creation|Modifications|Destruction|Import) complete")
FAILED = re.compile(r"with (?P<address>\S.*),\Z")
VERBS = {
    "Creating": "create",
    "Modifying": "change",
    "Destroying": "destroy",
    "Importing": "import",
}
COUNTED = {"add": 1, "change": 1, "destroy": 1, "replace": 2}  # a replacement destroys and creates
LONGEST_LINE = 4000
MOST_NAMED = 5


class Progress:
    def __init__(self, planned: Mapping[str, object]) -> None:
        """`planned` counts the resources that the plan adds, changes, destroys and replaces. Empty:
        the server did not send it.
        """
        counts = {name: planned.get(name) for name in COUNTED}
        self.total = sum(
            COUNTED[name] * count for name, count in counts.items() if isinstance(count, int)
        )
        self.done = 0
        self.under_way: dict[str, str] = {}  # address: create, change, destroy
        self.failed: list[str] = []
        self.line = b""
        self.is_in_error = False

    def feed(self, data: bytes) -> None:
        *lines, rest = (self.line + data).split(b"\n")
        for line in lines:
            self._read(
                ANSI.sub("", line[:LONGEST_LINE].decode("utf-8", "replace")).strip(FRAME + "\r")
            )
        self.line = rest[:LONGEST_LINE]

    def _read(self, line: str) -> None:
        begun, done = BEGUN.match(line), DONE.match(line)
        if begun:
            self.under_way[begun["address"]] = VERBS[begun["verb"]]
        elif done:
            self.done += 1
            self.under_way.pop(done["address"], None)
        elif line.startswith("Error: "):
            self.is_in_error = True
        elif self.is_in_error and (failed := FAILED.match(line)):
            self.is_in_error = False
            self.under_way.pop(failed["address"], None)
            if failed["address"] not in self.failed:
                self.failed.append(failed["address"])

    def describe(self) -> str:
        """The progress in one sentence, for the page of a task that did not finish."""
        number = (
            f"{self.done} of {self.total} changes"
            if self.total
            else f"{self.done} change{'' if self.done == 1 else 's'}"
        )
        parts = [f"{number} {'was' if self.done == 1 else 'were'} done"]
        if self.failed:
            parts.append(f"failed: {join_addresses(self.failed)}")
        if self.under_way:
            parts.append(f"not finished: {join_addresses(list(self.under_way))}")
        return f"{'; '.join(parts)}."


def join_addresses(addresses: list[str]) -> str:
    more = len(addresses) - MOST_NAMED
    return ", ".join(addresses[:MOST_NAMED]) + (f" and {more} more" if more > 0 else "")
