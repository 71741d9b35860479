"""`-p tests.left_out`: at the very end of a run, below the lines of pytest, what it left out and
the command that would include it. With CI in the environment, tests without their browser,
OpenTofu or Kubernetes API server fail the run.
"""

import os
import re
from collections import Counter
from collections.abc import Generator
from dataclasses import dataclass
from typing import Any

import pytest

CHROMIUM = "no chromium: make chromium"
OPENTOFU = "no OpenTofu: make tofu"
KUBE = "no kube-apiserver: make kube"


@dataclass(frozen=True)
class Group:
    pattern: str  # what the reason of a skip begins with
    name: str
    way_in: str


GROUPS = (
    Group(re.escape(CHROMIUM), "in a real browser", "make chromium"),
    Group(re.escape(OPENTOFU), "on a real OpenTofu", "make tofu (needs Go; some minutes, once)"),
    Group(
        re.escape(KUBE),
        "on a real Kubernetes API server",
        "make kube (needs Go; some minutes, once)",
    ),
    Group("only root |.* needs? root", "that need root", "make test, as root"),
    Group(
        "no other Python ",
        "on other versions of Python",
        "install another python3 (3.8 or newer), then make test",
    ),
    Group("this checkout has no history", "that read the history", "git fetch --unshallow"),
    Group(
        "this system |this machine |others have |no PID namespaces",
        "of what this machine lacks",
        "make test, as root on Linux with namespaces",
    ),
)


def find_group(reason: str) -> Group | None:
    return next((group for group in GROUPS if re.match(group.pattern, reason)), None)


def is_required(reason: str) -> bool:
    """`make chromium`, `make tofu` and `make kube` install what the test needs."""
    return reason.startswith((CHROMIUM, OPENTOFU, KUBE))


def describe(reasons: list[str]) -> list[str]:
    """A line for each group, the largest first; a reason of no group stands for itself."""
    groups: Counter[tuple[str, str]] = Counter()
    for reason in reasons:
        group = find_group(reason)
        groups[(group.name, group.way_in) if group else (f"skipped: {reason}", "see there")] += 1
    ordered = sorted(groups.items(), key=lambda item: (-item[1], item[0]))
    width = max((len(name) for name, _ in groups), default=0)
    return [
        f"{count:5} {name:{width}}  include them: {way_in}" for (name, way_in), count in ordered
    ]


# The outermost: what follows the yield comes after all that pytest itself prints.
@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_sessionfinish(session: pytest.Session) -> Generator[None, None, None]:
    yield
    reporter: Any = session.config.pluginmanager.get_plugin("terminalreporter")
    if reporter is None or hasattr(session.config, "workerinput"):
        return
    reasons = [
        report.longrepr[2].removeprefix("Skipped: ")
        for report in reporter.stats.get("skipped", [])
        if type(report.longrepr) is tuple
    ]
    if reasons:
        reporter.write_sep("!", f"{len(reasons)} tests were LEFT OUT", red=True, bold=True)
        for line in describe(reasons):
            reporter.write_line(line, bold=True)
    if os.environ.get("CI") and any(is_required(reason) for reason in reasons):
        reporter.write_line("CI needs the browser, OpenTofu and the API server: RED", red=True)
        session.exitstatus = pytest.ExitCode.TESTS_FAILED
