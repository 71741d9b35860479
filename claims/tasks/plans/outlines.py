"""Make outlines of plans in a child process: when an agent uploads a plan, and when a plan of an
earlier release is read for the first time.
"""

import threading
from dataclasses import dataclass

from claims.models import Plan
from claims.tasks.files.sealed_files import delete_file, read_file, save_file
from claims.tasks.plans.plan_outline import NotAPlan, read_head
from claims.tasks.task_result import describe_mismatch
from project.kernel.errors import Invalid, NotFound, TooLarge, Unavailable
from project.kernel.security.sandbox import ChildFailed, SandboxLimits, run_limited

FUNCTION = "claims.tasks.plans.plan_outline:answer_outline"
# Enough for 64 MB of JSON, the largest accepted plan (`claims.tasks.runs.work_order.MOST_JSON`).
# The memory limit of a web process in deploy/ includes one such child.
LIMITS = SandboxLimits(memory=320_000_000, cpu=60, wall=90.0, output=50_000_000)
PATIENCE = 10.0  # seconds
BUSY = "Other plans are being read."
_turn = threading.Lock()  # one child at a time in a process


@dataclass(frozen=True, slots=True)
class OutlineResult:
    data: bytes
    resources: int
    counts: dict[str, int]


def outline_plan(data: bytes) -> OutlineResult:
    """The outline of a plan's JSON. Raises NotAPlan, TooLarge, or Unavailable while other plans are
    read.
    """
    if not _turn.acquire(timeout=PATIENCE):
        raise Unavailable(BUSY, way_out="Try again in a moment.")
    try:
        made = run_limited(FUNCTION, data, LIMITS)
    except ChildFailed as error:
        if error.limit == "wall":
            raise Unavailable(f"{BUSY} {error}", way_out="Try again in a moment.") from error
        if error.limit:
            raise TooLarge(
                f"The plan's JSON cannot be read. {error}",
                code="plan_too_large",
                way_out="Plan fewer resources at once.",
            ) from error
        raise NotAPlan(f"The plan's JSON cannot be read. {error}") from error
    except Invalid as error:
        raise NotAPlan(error.detail, code=error.code, way_out=error.way_out) from error
    finally:
        _turn.release()
    head = read_head(made)
    return OutlineResult(made, head["resources"], head["counts"])


def read_outline_of(plan: Plan) -> bytes:
    """The outline of a plan, which is made now if it does not exist. Raises NotAPlan for unreadable
    JSON, and NotFound if the JSON is gone.
    """
    if plan.outline_file:
        try:
            return read_file(plan.outline_file)
        except NotFound:
            pass  # make it again
    return make_outline_of(plan)


def make_outline_of(plan: Plan) -> bytes:
    """Makes the outline and compares the list of changes with the agent's counts. A plan with an
    unreadable or contradicting list cannot be approved.
    """
    present = Plan.objects.filter(
        pk=plan.pk, json_file=str(plan.json_file), outline_file=str(plan.outline_file)
    )
    try:
        made = outline_plan(read_file(plan.json_file))
    except (NotAPlan, TooLarge) as error:
        present.update(mismatch=f"The list of changes cannot be read: {error.detail}")
        raise NotAPlan(error.detail) from error
    name = save_file("outline", f"{plan.claim_id}-{plan.generation}", made.data)
    if present.update(outline_file=name, mismatch=describe_mismatch(plan.summary, made.counts)):
        delete_file(plan.outline_file)
    else:  # another process was faster
        delete_file(name)
    return made.data
