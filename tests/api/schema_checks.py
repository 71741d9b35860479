"""Checks of an answer that Schemathesis does not have, or has in a weaker form."""

import re
from collections.abc import Iterator
from typing import Any
from urllib.parse import parse_qs, urlsplit

from schemathesis.checks import negative_data_rejection
from schemathesis.core.failures import AcceptedNegativeData
from schemathesis.core.parameters import ParameterLocation

BULK = re.compile(r"/(bulk|bulk-release)/$")
REFUSALS = range(400, 600)  # `not_a_server_error` judges those from 500 on


def refuses_what_is_wrong(context: Any, response: Any, case: Any) -> Any:
    """An unknown field, a wrong type or a value out of range, in a body or a query, gets a 4xx and
    is never accepted as another field. The URL decides what a query contains. Left out: paths and
    callers, which the tests set; null, which means left out; and bulk calls, which answer item by
    item."""
    faults = query_faults(case.operation, response.request.url)
    if faults and response.status_code not in REFUSALS:
        raise AcceptedNegativeData(
            operation=case.operation.label,
            message=f"The query is wrong as it is sent, and accepted: {'; '.join(faults)}",
            status_code=response.status_code,
            expected_statuses=["4xx"],
        )
    parts = case.meta.components if case.meta is not None else {}
    body = parts.get(ParameterLocation.BODY)
    if body is None or not body.mode.is_negative:
        return None
    if BULK.search(case.operation.path) or has_null(case.body):
        return None
    if response.status_code == 412:  # If-Match names an old revision, so the body is not read
        return None
    return negative_data_rejection(context, response, case)


def has_null(body: Any) -> bool:
    if isinstance(body, dict):
        return any(map(has_null, body.values()))
    return any(map(has_null, body)) if isinstance(body, list) else body is None


def query_faults(operation: Any, url: str) -> list[str]:
    """What is wrong with the query of this URL, where each value is text. A generated wrong value
    may be a right one there: the text "1" for a number, false for "false", an empty list for none.
    """
    given = parse_qs(urlsplit(url).query, keep_blank_values=True)
    faults = []
    for parameter in operation.query:
        texts = given.pop(parameter.name, [])
        if len(texts) > 1:
            faults.append(f"{parameter.name} is given {len(texts)} times")
        elif not texts:
            if parameter.is_required:
                faults.append(f"{parameter.name} is missing")
        elif not any(map(parameter.get_validator().is_valid, readings(texts[0]))):
            faults.append(f"{parameter.name} is {texts[0]!r}")
    return [*faults, *(f"{name} is unknown" for name in given)]


def readings(text: str) -> Iterator[object]:
    """Values that a server may read from this text."""
    yield text
    yield text.split(",")
    if text in ("true", "false"):
        yield text == "true"
    try:
        yield int(text)
    except ValueError:
        try:
            yield float(text)
        except ValueError:
            return
