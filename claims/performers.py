"""Modules that register themselves with the kernel or the allocator when they are imported."""

from claims.lifecycle.deadline_notices import send_notice as send_notice
from claims.tasks.approvals import reservations as reservations
