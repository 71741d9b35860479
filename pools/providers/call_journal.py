"""The journal of a provider's writes: which outside object may still change because of an earlier
call. A worker that finds an object missing must know whether it may still appear.
"""

from abc import ABC, abstractmethod

from project.kernel.outbox import pending_calls


class CallJournal(ABC):
    @abstractmethod
    def begin(self, key: str, seconds: float) -> str | None:
        """Before a call that may have an effect for so many seconds. Returns the task of an earlier
        call that may have one, too, empty if it is not known; None: there is none.
        """

    @abstractmethod
    def set_task(self, key: str, task: str) -> None:
        """The call is performed outside, by this task."""

    @abstractmethod
    def end(self, key: str) -> None:
        """All calls have ended."""

    @abstractmethod
    def find(self, key: str) -> str | None:
        """The task of a call that may still have an effect, empty if it is not known. None: no
        such call.
        """


class SharedJournal(CallJournal):
    """The journal of the installation, in the database."""

    def begin(self, key: str, seconds: float) -> str | None:
        return pending_calls.begin_call(key, seconds)

    def set_task(self, key: str, task: str) -> None:
        pending_calls.set_call_task(key, task)

    def end(self, key: str) -> None:
        pending_calls.end_call(key)

    def find(self, key: str) -> str | None:
        return pending_calls.find_pending_call(key)
