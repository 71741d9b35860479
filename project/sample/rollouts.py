"""The rollouts of the sample. The user `vera` changes a label of the runners; their pool then has
outdated members, and its roll renews them.
"""

from collections.abc import Callable
from urllib.parse import urlencode

from project.sample.client import SampleClient, log_line
from project.sample.scenario import BY_POOL, RUNNERS

# Seconds after the start: the pool has grown to its maximum by then, so that the roll rebuilds
# members in their places while demand falls.
FIRST = 45.0
EVERY = BY_POOL[RUNNERS].period  # so that each later wave shows a roll too
LABEL = "toolchain"

After = Callable[[float, Callable[[], None]], None]


class Rollouts:
    def __init__(self, vera: SampleClient, after: After) -> None:
        self.vera, self.after = vera, after

    def begin(self) -> None:
        self.after(FIRST, self.change)

    def change(self) -> None:
        """Raise the number of the toolchain. A pool without the label stays as it is."""
        self.after(EVERY, self.change)
        path = f"pools/{RUNNERS}/"
        pool = self.vera.call("GET", path)
        labels = pool.body["config"]["members"].get("labels", {}) if pool.is_success else {}
        if not labels.get(LABEL, "").isdecimal():
            return
        number = int(labels[LABEL]) + 1
        reason = urlencode({"reason": f"toolchain {number} is released"})
        patch = {"members": {"labels": {LABEL: str(number)}}}
        answer = self.vera.call("PATCH", f"{path}?{reason}", patch, etag=pool.etag)
        # 412: the answer to an earlier try was lost, or a person has changed the pool meanwhile.
        if not answer.is_success and answer.status != 412:
            log_line(f"{RUNNERS} rejects a toolchain ({answer.status}): {answer.body}")
