"""A provider whose outside world is files, which outlive every process: a folder for each
member, a file for each slot in use.
"""

import os
from pathlib import Path
from typing import ClassVar

from pools.providers.base import (
    MemberReport,
    MemberSnapshot,
    Observation,
    PoolSnapshot,
    Provider,
    Seen,
)


def world() -> Path:
    return Path(os.environ["BERTH_TEST_WORLD"])


def read_world() -> dict[int, str]:
    """Slot -> "claim generation", for every slot that is in use outside."""
    return {int(file.name): file.read_text() for file in world().glob("*/[0-9]*")}


class ShedProvider(Provider):
    kind: ClassVar[str] = "shed"
    queue: ClassVar[str] = "shed"

    def sync(self, pool: PoolSnapshot, member: MemberSnapshot) -> MemberReport:
        folder = world() / str(member.id)
        folder.mkdir(parents=True, exist_ok=True)
        for slot in member.slots:
            file = folder / str(slot.id)
            if slot.state == "held":
                scratch = folder / f".{slot.id}.{os.getpid()}"
                scratch.write_text(f"{slot.claim_id} {slot.generation}")
                scratch.rename(file)
            else:
                file.unlink(missing_ok=True)
        draining = frozenset(slot.id for slot in member.slots if slot.state == "draining")
        return MemberReport(clean=draining, is_gone=member.state == "deleting", is_ready=True)

    def look(self, pool: PoolSnapshot) -> Observation:
        return Observation(
            tuple(Seen(member.id) for member in pool.members if (world() / str(member.id)).is_dir())
        )
