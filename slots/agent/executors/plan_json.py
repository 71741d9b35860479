"""Reads, counts, redacts and writes the JSON of a plan in a separate process.

A few megabytes of JSON can become gigabytes of objects. The separate process then runs out of
memory, and not the agent with all its tasks.
"""

from __future__ import annotations

import contextlib
import gc
import json
import os
import resource
import subprocess
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TypedDict

from ..common.errors import TaskFailed
from ..common.json_types import Json
from ..processes.process_table import MARK, children
from ..processes.program import python
from ..server.protocol import UploadLimits
from .plan_summary import count_drift, has_changes, summarize_plan
from .redaction import redact_plan

if TYPE_CHECKING:
    from .job import Job

MOST_MEMORY, LEAST_MEMORY = 3 << 30, 256 << 20
MOST_SECONDS = 300
LOOK_EVERY = 0.2
OUT_OF_MEMORY = 3  # exit code
START = (
    f"import sys; sys.path.insert(0, sys.argv[1]); from {__package__}.plan_json import main; main()"
)


@dataclass
class PlanJson:
    summary: dict[str, int]
    drift: int
    says_changes: bool  # the JSON lists changes; otherwise `has_changes` is not known from it
    has_changes: bool


class RedactionOrder(TypedDict):
    """Input of the separate process."""

    raw: str
    kept: str
    most_raw: int
    most: int
    memory: int
    secrets: list[str]


def save_plan_json(job: Job, raw: Path, kept: Path) -> PlanJson:
    """Write the redacted JSON of the plan in `raw` to `kept`; returns its summary."""
    limits, memory = job.work.limits, find_memory()
    order: RedactionOrder = {
        "raw": str(raw),
        "kept": str(kept),
        "most_raw": most_raw(limits),
        "most": limits.json_bytes,
        "memory": memory,
        "secrets": [secret.hex() for secret in job.secrets],
    }
    answer, code = run_beside(job, json.dumps(order).encode())
    if code == OUT_OF_MEMORY or code < 0:
        raise TaskFailed(
            "plan_too_large",
            f"Reading the plan as JSON takes more than {memory / 1e6:,.0f} MB of memory, or too "
            "much time.",
        )
    try:
        found = json.loads(answer)
    except ValueError as error:
        raise TaskFailed(
            "not_json", f"The plan as JSON cannot be read: its reader ended with exit code {code}."
        ) from error
    if "errno" in found:
        raise OSError(found["errno"], found["text"])
    if "code" in found:
        raise TaskFailed(found["code"], found["reason"])
    return PlanJson(**found)


def run_beside(job: Job, order: bytes) -> tuple[bytes, int]:
    root = Path(__file__).resolve().parents[__name__.count(".")]  # a folder, or the one-file agent
    process = children.start(
        [*python(), "-c", START, str(root)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env={MARK: job.mark, "PATH": os.environ.get("PATH", os.defpath)},
    )
    with process:
        try:
            while True:
                job.check_time()
                try:
                    answer, _ = process.communicate(order, LOOK_EVERY)
                    return answer, process.returncode
                except subprocess.TimeoutExpired:
                    order = b""  # already sent
        finally:
            process.kill()
            process.wait()
            children.forget(process.pid)


def find_memory() -> int:
    """Bytes of memory for the separate process: half of this machine's, within bounds."""
    there = [MOST_MEMORY * 2]
    with contextlib.suppress(OSError, ValueError):
        there.append(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
    for name in ("memory.max", "memory/memory.limit_in_bytes"):
        with contextlib.suppress(OSError, ValueError):
            there.append(int(Path("/sys/fs/cgroup", name).read_text()))
    return max(LEAST_MEMORY, min(there) // 2)


def most_raw(limits: UploadLimits) -> int:
    """Most bytes of the JSON before its redundant parts are removed."""
    return min(max(limits.json_bytes * 3, 16_000_000), 200_000_000)


# In the separate process


def main() -> None:
    order = json.loads(sys.stdin.buffer.read())
    gc.disable()  # millions of objects, and no garbage among them
    limit("RLIMIT_AS", order["memory"])
    limit("RLIMIT_CPU", MOST_SECONDS)
    limit("RLIMIT_CORE", 0)
    with contextlib.suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text("500")
    try:
        answer = json.dumps(digest_shown(order))
    except MemoryError:
        os._exit(OUT_OF_MEMORY)
    except TaskFailed as error:
        answer = json.dumps({"code": error.code, "reason": error.reason})
    except OSError as error:
        answer = json.dumps({"errno": error.errno, "text": str(error.strerror)})
    os.write(1, answer.encode())
    os._exit(0)  # skips freeing millions of objects


def limit(name: str, value: int) -> None:
    with contextlib.suppress(AttributeError, OSError, ValueError):
        number = getattr(resource, name)
        most = resource.getrlimit(number)[1]
        value = value if most == resource.RLIM_INFINITY else min(value, most)
        resource.setrlimit(number, (value, value))


def digest_shown(order: RedactionOrder) -> Json:
    shown = read_json(Path(order["raw"]), order["most_raw"])
    found = PlanJson(
        summarize_plan(shown),
        count_drift(shown),
        "resource_changes" in shown or "output_changes" in shown,
        has_changes(shown),
    )
    write_redacted_json(
        shown,
        [bytes.fromhex(secret) for secret in order["secrets"]],
        Path(order["kept"]),
        order["most"],
    )
    return asdict(found)


def read_json(path: Path, most: int) -> Json:
    try:
        with path.open("rb") as file:
            data = file.read(most + 1)
        if len(data) > most:
            raise TaskFailed("plan_too_large", f"The plan as JSON has more than {most:,} bytes.")
        found = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise TaskFailed(
            "not_json", f"The plan as JSON is not valid JSON: {str(error)[:200]}"
        ) from error
    if not isinstance(found, dict):
        raise TaskFailed("not_json", "The plan as JSON is not a JSON object.")
    return found


def write_redacted_json(plan: Json, secrets: list[bytes], path: Path, most: int) -> None:
    """Write the redacted plan. A plan over the limit loses the parts that repeat its changes."""
    try:
        kept = redact_plan(plan, secrets)
        data = json.dumps(kept, ensure_ascii=False).encode("utf-8", "replace")
        if len(data) > most:
            slim = {
                key: value
                for key, value in kept.items()
                if key not in ("prior_state", "planned_values", "relevant_attributes")
            }
            data = json.dumps(slim, ensure_ascii=False).encode("utf-8", "replace")
    except RecursionError as error:
        raise TaskFailed("not_json", "The plan as JSON is nested too deep.") from error
    if len(data) > most:
        raise TaskFailed(
            "plan_too_large",
            f"The plan as JSON has {len(data):,} bytes, the limit of this pool is {most:,}.",
        )
    path.write_bytes(data)
    path.chmod(0o600)
