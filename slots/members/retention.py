"""Members that are gone are kept for a week, with their slots and heartbeats; then their rows
go. What happened stays in the log.
"""

from project.kernel.events.retention import retention_rule
from slots.members import members_sql

SLOTS = 5000  # deleted at a time; a member goes with the last of its slots


@retention_rule("gone members", days=7)
def delete_gone_members(days: float, chunk: int) -> int:
    """Slots first, member after member, so that one with very many does not take a transaction
    of its size.
    """
    slots = members_sql.delete_gone_slots(min(chunk, SLOTS), days=days)
    if slots:
        return len(slots)
    return len(members_sql.delete_gone_members(chunk, days=days))
