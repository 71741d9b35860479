"""Errors of the agent, by their meaning for the caller."""

from __future__ import annotations


class AgentError(Exception):
    pass


class ServerUnavailable(AgentError):
    """The server does not answer, or not like Berth. A later call may succeed."""


class AnswerTooLarge(ServerUnavailable):
    """The server sends more than the limit."""


class TokenRejected(AgentError):
    """401: the token is invalid."""


class RequestRefused(AgentError):
    """Berth refuses the request with a reason; a repeated request is refused, too."""

    def __init__(
        self, status: int, code: str, detail: str = "", body: dict[str, object] | None = None
    ) -> None:
        super().__init__(f"{status} {code}: {detail}" if detail else f"{status} {code}")
        self.status = status
        self.code = code
        self.detail = detail
        self.body = body or {}


class TaskFailed(AgentError):
    """The task fails, or is planned again, with a code and a text for its page."""

    def __init__(
        self, code: str, reason: str, exit_code: int | None = None, outcome: str = "failed"
    ) -> None:
        super().__init__(reason)
        self.code = code
        self.reason = reason
        self.exit_code = exit_code
        self.outcome = outcome


class Stopped(AgentError):
    """The run must end: the server ordered it, or the agent ends."""


class Unusable(AgentError):
    """The agent cannot start. The text gives the reason and the way out."""

    def __init__(self, text: str, exit_code: int = 2) -> None:
        super().__init__(text)
        self.exit_code = exit_code
