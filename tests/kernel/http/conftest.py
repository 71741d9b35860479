from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest

from tests.conftest import serve_web
from tests.kernel.http.raw_socket import Raw

Connect = Callable[..., Raw]


@pytest.fixture
def connect() -> Iterator[Connect]:
    """`connect(url, source)`: connections that are closed after the test."""
    with ExitStack() as stack:

        def make(url: str, source: str = "127.0.0.1") -> Raw:
            raw = Raw(url, source)
            stack.callback(raw.close)
            return raw

        yield make


@pytest.fixture(scope="module")
def strict(django_db_setup: None) -> Iterator[str]:
    """A web process with limits that are reached within a second."""
    limits = {"BERTH_HEAD_SECONDS": "1", "BERTH_IDLE_SECONDS": "1", "BERTH_BODY_SECONDS": "1"}
    limits |= {
        "BERTH_IDLE_CONNECTIONS": "8",
        "BERTH_CONNECTIONS_PER_ADDRESS": "5",
        "BERTH_CONNECTIONS": "40",
    }
    with serve_web(**limits) as url:
        yield url
