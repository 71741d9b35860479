"""Modules that register with the kernel, the allocator or the kinds of claims on import."""

from claims.lifecycle.deadline_notices import send_notice as send_notice
from claims.ports import port_kind as port_kind
from claims.ports import use_reader as use_reader
from claims.ports import withheld_ready as withheld_ready
from claims.tasks.approvals import reservations as reservations
from claims.tasks.runs import task_kind as task_kind
