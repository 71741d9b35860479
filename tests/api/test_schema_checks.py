"""The checks of generated requests judge a query as the URL holds it."""

import pytest

from tests.api.schema_checks import query_faults
from tests.api.test_schema import OPERATIONS

SLOTS = "GET /api/v1/slots/"
UNSHARE = "DELETE /api/v1/workspaces/{workspace}/pools/{pool_name}/"


@pytest.mark.parametrize(
    ("label", "query"),
    [
        (SLOTS, ""),
        (SLOTS, "limit=1"),
        (SLOTS, "open=false"),
        (SLOTS, "state=idle"),
        (SLOTS, "state=idle,held"),
        (SLOTS, "pool=7"),
        (UNSHARE, "reason=1"),
        ("GET /api/v1/agent/orders/", "wait=0.5"),
    ],
)
def test_a_value_that_is_right_as_text_is_right(label: str, query: str) -> None:
    assert query_faults(OPERATIONS[label], f"http://localhost/?{query}") == []


@pytest.mark.parametrize(
    ("label", "query"),
    [
        (SLOTS, "limit=many"),
        (SLOTS, "limit=0"),
        (SLOTS, "limit=1&limit=2"),
        (SLOTS, "open=no"),
        (SLOTS, "state=idle,lost"),
        (SLOTS, "state="),
        (SLOTS, "colour=red"),
        (UNSHARE, ""),
        (UNSHARE, "reason="),
        ("GET /api/v1/agent/orders/", "wait=61"),
    ],
)
def test_a_value_that_is_wrong_as_text_is_wrong(label: str, query: str) -> None:
    assert len(query_faults(OPERATIONS[label], f"http://localhost/?{query}")) == 1
