"""A journal of writes for tests, in place of the one in the database."""

from dataclasses import dataclass, field

from pools.providers.call_journal import CallJournal


@dataclass
class MemoryJournal(CallJournal):
    """Its time does not move: a write without an answer may have an effect until `pass_time`."""

    tasks: dict[str, str] = field(default_factory=dict)

    def begin(self, key: str, seconds: float) -> str | None:
        earlier = self.find(key)
        self.tasks[key] = ""
        return earlier

    def set_task(self, key: str, task: str) -> None:
        if key in self.tasks:
            self.tasks[key] = task

    def end(self, key: str) -> None:
        self.tasks.pop(key, None)

    def find(self, key: str) -> str | None:
        return self.tasks.get(key)

    def pass_time(self) -> None:
        self.tasks = {key: task for key, task in self.tasks.items() if task}
