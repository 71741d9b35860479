"""The former module of the reaper, which running agents of an earlier release start. Remove it once
no such agent runs.
"""

from __future__ import annotations

from .processes.reaper import main

__all__ = ["main"]
