"""The former module of plan_json, which running agents of an earlier release start. Remove it once
no such agent runs.
"""

from __future__ import annotations

from .executors.plan_json import main

__all__ = ["main"]
