"""Evacuations: I46 an evacuated member is there and cordoned, and its evacuation goes on."""

from collections.abc import Iterator
from functools import partial

from claims.ports.evacuation.orders import evacuate_member
from project.kernel.db.sql import run
from project.kernel.doctor.registry import Finding, check
from slots.members import members_sql

OVERDUE = 60.0  # seconds after which a step that is due counts as not taken

WRONG = """
SELECT e.member_id, e.reason, e.stays, coalesce(m.name, '') AS name,
  coalesce(m.state, 'gone') AS state, coalesce(m.is_cordoned, false) AS is_cordoned,
  extract(epoch FROM now() - e.due_at)::float8 AS age
FROM slots_evacuation e LEFT JOIN pools_member m ON m.id = e.member_id
WHERE coalesce(m.state, 'gone') = 'gone' OR NOT m.is_cordoned
  OR e.due_at < now() - make_interval(secs => %(overdue)s::float8)
ORDER BY e.member_id LIMIT 1000"""


@check(
    "I46",
    "An evacuated member is there and cordoned, and its evacuation goes on",
    "New claims would get ports of a member whose claims move away, or old listeners never end.",
)
def find_wrong_evacuations() -> Iterator[Finding]:
    for row in run(WRONG, {"overdue": OVERDUE}, prepare=False):
        subject = f"member {row.name or row.member_id}"
        if row.state == "gone":
            yield Finding(
                subject,
                "is gone, and its evacuation is still recorded",
                "--repair deletes the record.",
                partial(_delete, row.member_id),
            )
        elif not row.is_cordoned:
            yield Finding(
                subject,
                "is being evacuated and takes claims",
                "--repair cordons it again.",
                partial(_cordon, row.member_id, row.reason, stays=row.stays),
            )
        else:
            yield Finding(
                subject,
                f"the next step of its evacuation was due {row.age:.0f} s ago",
                "Check that the finalizer runs; its log has the error.",
            )


def _delete(member_id: int) -> None:
    members_sql.end_evacuation(member=member_id, limit=0.0)


def _cordon(member_id: int, reason: str, *, stays: bool) -> None:
    evacuate_member(member_id=member_id, reason=reason, stays=stays)
