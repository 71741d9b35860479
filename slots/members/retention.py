"""Deletes members that have been gone for a week, with their slots and heartbeats. Events stay."""

from project.kernel.events.retention import retention_rule
from slots.members import members_sql

SLOTS = 5000  # most slots in one call


@retention_rule("gone members", days=7)
def delete_gone_members(days: float, chunk: int) -> int:
    """Delete slots first, in limited numbers, so that a large member needs no large transaction."""
    slots = members_sql.delete_gone_slots(min(chunk, SLOTS), days=days)
    if slots:
        return len(slots)
    return len(members_sql.delete_gone_members(chunk, days=days))
