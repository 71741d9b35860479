"""Removes folders that no run and no claim needs."""

from __future__ import annotations

import contextlib

from .common.state import FINISHED, REPORTED
from .earlier_runs import Leftovers
from .runner import Context
from .server.protocol import Orders
from .workdir.folders import remove

UNLISTED = 2  # further lists without a claim after which the folder of its plan is removed


class RunFolders:
    def __init__(self, context: Context, leftovers: Leftovers) -> None:
        self.context, self.leftovers = context, leftovers
        self.lists = 0  # received lists of orders
        self.unwanted_since: dict[tuple[int, int], int] = {}

    def sweep(self) -> None:
        """Remove what an earlier start left."""
        state = self.context.state
        state.sweep()
        known = {
            record.name
            for record in state.list_records()
            if record.keep or record.phase != REPORTED
        }
        known |= {
            str(record.extra.get("folder"))
            for record in state.list_records()
            if record.phase == FINISHED
        }
        for folder in [*self.context.base.iterdir(), *state.log_folders.iterdir()]:
            if folder.name not in known and not remove(folder):
                self.context.log.error("folder cannot be removed", folder=folder)

    def sweep_old(self, claims: set[int]) -> None:
        """Limit the number of records and folders while the agent runs. `claims`: those of orders
        and runs, whose records stay.
        """
        claims = claims | {record.claim for record in self.leftovers.ending}
        for record in self.context.state.sweep(claims):
            if not remove(self.context.base / record.name):
                self.context.log.error("folder cannot be removed", folder=record.name)

    def delete_unused_plans(self, orders: Orders | None, running: set[int]) -> None:
        """Remove folders of plans that no claim needs. Several lists must lack the claim, because a
        list may be older than the plan.
        """
        if orders is None or orders.keep is None:
            return
        wanted = orders.keep | {order.claim for order in orders.orders} | running
        # The reaper of an apply still works in the folder of its plan.
        wanted |= {record.claim for record in self.leftovers.ending}
        kept = {record.key: record for record in self.context.state.list_records() if record.keep}
        self.unwanted_since = {
            key: self.unwanted_since.get(key, self.lists) for key in kept if key[0] not in wanted
        }
        for key, since in list(self.unwanted_since.items()):
            if self.lists - since > UNLISTED:
                record = kept[key]
                record.keep = False
                remove(self.context.base / record.name)
                with contextlib.suppress(OSError):
                    self.context.state.save(record)
                self.context.log.info("folder of a plan removed", run=record.name)
