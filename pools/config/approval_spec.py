"""`approval:` of a pool's configuration: the approvals that a plan needs, its deadline, and how
long its slot is reserved. Pure.
"""

from collections.abc import Collection
from dataclasses import dataclass, replace

from pools.config.durations import DAY, HOUR, MINUTE, format_duration
from pools.config.fields import Object, option
from pools.config.parsing import Duration, Faults, Flag, Integer, field_path

DEFAULT_NOTICE = 2 * HOUR
ALWAYS = "always"


@dataclass(frozen=True, slots=True)
class ApprovalSpec:
    needed: int = option(Integer(1, 10), 1, "Number of people who must approve an apply.")
    own: bool = option(
        Flag(), True, "Whether the requester may approve. Default: if one approval is needed."
    )
    expires: float = option(
        Duration(MINUTE, 30 * DAY),
        24 * HOUR,
        "A plan without a decision by then is stale, and its claim ends.",
    )
    notice: float = option(
        Duration(0.0, 30 * DAY),
        DEFAULT_NOTICE,
        "Reminder, this long before the deadline; 0s: no reminder.",
    )
    # None: as long as the plan waits.
    hold: float | None = option(
        Duration(0.0, 30 * DAY, ALWAYS),
        None,
        "How long a waiting plan keeps its slot; then the slot is released and the plan is kept.",
    )

    def holds(self, waited: float) -> bool:
        """Whether a plan that has waited for so many seconds still keeps its slot."""
        return self.hold is None or waited < self.hold


DEFAULT = ApprovalSpec()


def _finish(spec: ApprovalSpec, given: Collection[str], where: str, faults: Faults) -> ApprovalSpec:
    if "own" not in given:
        spec = replace(spec, own=spec.needed == 1)
    if "notice" not in given:
        return replace(spec, notice=min(DEFAULT_NOTICE, spec.expires / 2))
    if spec.notice >= spec.expires:
        expires = format_duration(spec.expires)
        what = f"{format_duration(spec.notice)} is not shorter than expires, {expires}."
        faults.add(field_path(where, "notice"), what, "Shorten it, or write 0s for no notice.")
    return spec


APPROVAL = Object(ApprovalSpec, finish=_finish)
