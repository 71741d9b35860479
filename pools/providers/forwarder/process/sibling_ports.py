"""The ports of the other forwarders of this machine, from the plans in the folders beside this one.
A target among them is refused: two forwarders that target each other pass a datagram on without
end.
"""

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from pools.providers.forwarder.process.plan import InvalidPlan, Port, list_ports, read_plan
from pools.providers.forwarder.process.plan_file import NAME, read_file

Stamp = tuple[int, int]  # inode and time of change of a plan


class SiblingPorts:
    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._known: dict[Path, tuple[Stamp, frozenset[Port]]] = {}

    def read(self) -> bool:
        """Read the plans that have changed. True: the ports may be others than before."""
        now = dict(self._list_plans())
        changed = {
            folder
            for folder in now.keys() | self._known.keys()
            if folder not in now or self._known.get(folder, ((0, 0),))[0] != now[folder]
        }
        for folder in changed:
            self._known.pop(folder, None)
            # A plan that cannot be read is tried again.
            with suppress(OSError, ValueError, InvalidPlan):
                if folder in now:
                    ports = list_ports(read_plan(read_file(folder)))
                    self._known[folder] = (now[folder], frozenset(ports))
        return bool(changed)

    @property
    def ports(self) -> frozenset[Port]:
        return frozenset().union(*(ports for _, ports in self._known.values()))

    def _list_plans(self) -> Iterator[tuple[Path, Stamp]]:
        for file in self._folder.parent.glob(f"*/{NAME}"):
            if file.parent != self._folder:
                with suppress(OSError):  # its member was removed
                    found = file.stat()
                    yield file.parent, (found.st_ino, found.st_mtime_ns)
