"""Log an outage once, and its end once."""

import logging


class LogOnce:
    def __init__(
        self,
        what: str,
        logger: logging.Logger,
        *,
        away: str = "are not sent, everybody looks by timer",
        back: str = "are sent again",
    ) -> None:
        self._what, self._away, self._back = what, away, back
        self._logger = logger
        self._is_down = False

    def failed(self, error: BaseException) -> None:
        if not self._is_down:
            self._logger.warning(
                "%s %s: %s: %s", self._what, self._away, type(error).__name__, error
            )
        self._is_down = True

    def worked(self) -> None:
        if self._is_down:
            self._logger.info("%s %s", self._what, self._back)
        self._is_down = False
