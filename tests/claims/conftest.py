"""Claims are tested through their services, on a real database and with real commits: what happens after the commit counts, too."""

from collections.abc import Iterator

import pytest
from django.db import connection

from claims.explaining import forget_explanations
from claims.routes import forget_routes
from tests.model import kit


@pytest.fixture(autouse=True)
def _nothing_remembered() -> None:
    forget_routes()
    forget_explanations()


@pytest.fixture
def tables(django_db_setup: None, django_db_blocker: object) -> Iterator[None]:
    """Real commits. Emptied by one TRUNCATE before and after: Django's flush of every table takes ten times as long."""
    with django_db_blocker.unblock():  # type: ignore[attr-defined]
        kit.empty()
        yield
        connection.close()
        kit.empty()
