"""An answer names a bounded number of faults, however many fields are wrong."""

import json

import pytest

from pools.config.parsing import Faults
from project.kernel.errors import LONGEST_NAME, MOST_FIELDS, FieldError, Invalid
from tests.api.conftest import Callers
from tests.api.helpers import make_pool

MANY = {f"unknown-field-{n}": n for n in range(20_000)}


@pytest.mark.parametrize("what", ["members/{member}/", "tokens/", "pools/p/", "claims/"])
def test_thousands_of_unknown_fields_give_a_short_answer(what: str, caller: Callers) -> None:
    pool = make_pool("p", slots=1)
    root = caller("superuser")
    method = {"members/{member}/": "PATCH", "pools/p/": "PATCH"}.get(what, "POST")
    answer = root(method, what.format(member=pool.members.get().pk), MANY, if_match="*")
    assert answer.status == 400, answer.body
    assert len(answer.body["errors"]) <= MOST_FIELDS + 1
    assert len(json.dumps(answer.body)) < 60_000


def test_many_unknown_parameters_give_a_short_answer(caller: Callers) -> None:
    answer = caller("viewer").get("claims/?" + "&".join(f"x{n}=" for n in range(1500)))
    assert (answer.status, len(answer.body["errors"])) == (400, MOST_FIELDS + 1)


def test_an_error_names_some_of_many_fields_and_counts_the_rest() -> None:
    error = Invalid(fields=(FieldError(f"f{n}", "Wrong.") for n in range(1000)))
    assert len(error.fields) == MOST_FIELDS + 1
    assert error.fields[-1].message == "900 more fields are wrong and not listed here."
    assert Invalid(fields=error.fields).fields == error.fields, "told again they stay the same"


def test_an_error_shortens_names_and_texts() -> None:
    found = Invalid(fields=[FieldError("x" * 100_000, "y" * 100_000, "z" * 100_000)]).fields[0]
    assert len(found.field) == LONGEST_NAME
    assert len(found.message) + len(found.way_out) < 5000


def test_faults_are_counted_beyond_the_bounded_number_that_is_kept() -> None:
    faults = Faults()
    for n in range(10_000):
        faults.add(f"f{n}", "Wrong.")
    assert (len(faults.found), faults.count) == (MOST_FIELDS + 1, 10_000)


def test_a_parameter_that_is_given_twice_is_refused(caller: Callers) -> None:
    answer = caller("viewer").get("claims/?state=waiting&state=bound")
    assert answer.status == 400
    assert answer.body["errors"][0]["field"] == "state"
    assert "2 times" in answer.body["errors"][0]["message"]
