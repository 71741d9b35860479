"""Something that is away for a while is told of once, and once more when it is back."""

import logging


class Quiet:
    """Says once that Valkey is away, and once that it is back."""

    def __init__(self, what: str, logger: logging.Logger) -> None:
        self._what = what
        self._logger = logger
        self._is_down = False

    def failed(self, error: BaseException) -> None:
        if not self._is_down:
            self._logger.warning("%s are not sent, everybody looks by timer: %s: %s", self._what, type(error).__name__, error)
        self._is_down = True

    def worked(self) -> None:
        if self._is_down:
            self._logger.info("%s are sent again", self._what)
        self._is_down = False
