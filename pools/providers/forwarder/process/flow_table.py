"""UDP flows by client, with a limit and an idle time-out. Pure: the caller gives the time."""

from collections import OrderedDict
from collections.abc import Hashable
from dataclasses import dataclass
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


@dataclass(slots=True)
class FlowEntry(Generic[V]):
    value: V
    used_at: float


class FlowTable(Generic[K, V]):
    """The least recently used flow comes first, so that a look at the first entries finds all
    flows that are due. `most` and `idle` may change at any time.
    """

    def __init__(self, most: int, idle: float) -> None:
        self.most = most
        self.idle = idle
        self._entries: OrderedDict[K, FlowEntry[V]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._entries)

    @property
    def is_full(self) -> bool:
        return len(self._entries) >= self.most

    def get(self, key: K, now: float) -> V | None:
        """The flow of this client, which counts as used now."""
        entry = self._entries.get(key)
        if entry is None:
            return None
        entry.used_at = now
        self._entries.move_to_end(key)
        return entry.value

    def add(self, key: K, value: V, now: float) -> None:
        """The caller has checked `is_full`, and that the client has no flow."""
        self._entries[key] = FlowEntry(value, now)

    def remove(self, key: K) -> V | None:
        entry = self._entries.pop(key, None)
        return None if entry is None else entry.value

    def expire(self, now: float) -> list[V]:
        """Remove and return the flows that were idle for `idle` seconds."""
        found = []
        while self._entries:
            key, entry = next(iter(self._entries.items()))
            if now - entry.used_at < self.idle:
                break
            del self._entries[key]
            found.append(entry.value)
        return found

    def clear(self) -> list[V]:
        """Remove and return all flows."""
        found = [entry.value for entry in self._entries.values()]
        self._entries.clear()
        return found
