"""Fixtures for every test."""

from collections.abc import Iterator

import pytest

from project.kernel import hints


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Browser tests share one worker and come last: Playwright's event loop stays, and no asynchronous test can run beside it."""
    for item in items:
        if item.get_closest_marker("browser"):
            item.add_marker(pytest.mark.xdist_group("browser"))
    items.sort(key=lambda item: item.get_closest_marker("browser") is not None)


@pytest.fixture(scope="session")
def django_db_setup(django_db_setup: None) -> Iterator[None]:
    """The connection that sends hints outlives every test, and a database in use cannot be dropped."""
    yield
    hints.disconnect()
