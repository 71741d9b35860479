"""Timing of outside calls for Prometheus."""

import time
from types import TracebackType

from prometheus_client import Histogram

from project.kernel.outbox.operations import ProviderError


class timed:  # noqa: N801  used as a context manager
    """Observes the duration of a call. The last label of the histogram is the outcome: ok, or the
    code of the error.
    """

    def __init__(self, histogram: Histogram, *labels: str) -> None:
        self._histogram, self._labels = histogram, labels

    def __enter__(self) -> None:
        self._began = time.perf_counter()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        outcome = "ok" if error is None else "unexpected"
        if isinstance(error, ProviderError):
            outcome = error.code
        self._histogram.labels(*self._labels, outcome).observe(time.perf_counter() - self._began)
