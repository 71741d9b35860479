"""A provider whose outside world is files, which outlive every process: a folder for each
member, a file for each slot in use.
"""

import os
import shutil
from dataclasses import replace
from pathlib import Path
from typing import ClassVar

from pools.config.fields import Fields, Option
from pools.config.parsing import Described
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


class YardProvider(ShedProvider):
    """Creates the folders of its members and removes them. A folder records the template and each
    incarnation that was made from it.
    """

    kind: ClassVar[str] = "yard"
    is_owner: ClassVar[bool] = True
    look_every: ClassVar[float] = 5.0  # as often as the watcher looks, else no look is fresh
    option_fields: ClassVar[Fields] = Fields({"template": Option(Described({}), "")})
    rolled: ClassVar[tuple[str, ...]] = ("template",)

    def sync(self, pool: PoolSnapshot, member: MemberSnapshot) -> MemberReport:
        folder = world() / str(member.id)
        if member.state == "deleting":
            shutil.rmtree(folder, ignore_errors=True)
            return MemberReport(is_gone=True)
        report = super().sync(pool, member)
        made = folder / f".made-{member.incarnation}"
        if not made.exists():
            made.write_text(str(pool.options.get("template", "")))
        return replace(report, external_id=folder.name)

    def look(self, pool: PoolSnapshot) -> Observation:
        """A folder of an earlier incarnation makes no member ready."""
        seen = {found.member_id for found in super().look(pool).seen}
        return Observation(
            tuple(
                Seen(member.id, is_ready=made.exists(), external_id=made.parent.name)
                for member in pool.members
                if member.id in seen
                and (made := world() / str(member.id) / f".made-{member.incarnation}")
            )
        )


def list_made() -> set[int]:
    """Members with a folder of the yard."""
    return {int(made.parent.name) for made in world().glob("*/.made-*")}
