"""What may go wrong, by what it means for the one who meets it."""

from __future__ import annotations


class AgentError(Exception):
    pass


class ServerUnavailable(AgentError):
    """The server does not answer, or not as Berth does. It may do so later."""


class AnswerTooLarge(ServerUnavailable):
    """It sends more than was agreed."""


class TokenRejected(AgentError):
    """401: this agent is no member (any more)."""


class RequestRefused(AgentError):
    """Berth itself says no, with a reason of its own: asking again changes nothing."""

    def __init__(
        self, status: int, code: str, detail: str = "", body: dict[str, object] | None = None
    ) -> None:
        super().__init__(f"{status} {code}: {detail}" if detail else f"{status} {code}")
        self.status = status
        self.code = code
        self.detail = detail
        self.body = body or {}


class TaskFailed(AgentError):
    """The task ends as failed (or is to be planned again), typed, with words for its page."""

    def __init__(
        self, code: str, reason: str, exit_code: int | None = None, outcome: str = "failed"
    ) -> None:
        super().__init__(reason)
        self.code = code
        self.reason = reason
        self.exit_code = exit_code
        self.outcome = outcome


class Stopped(AgentError):
    """The run was told to end: by the server, or because the agent ends."""


class Unusable(AgentError):
    """The agent cannot start like this. The text says why, and the way out."""

    def __init__(self, text: str, exit_code: int = 2) -> None:
        super().__init__(text)
        self.exit_code = exit_code
