"""docs/model.md agrees with the declared state machines and rules."""

import re

from claims.checks.holding import RULES
from tests.database.diagrams import PAGE, draw, written


def test_the_diagrams_are_those_of_the_declared_machines() -> None:
    assert written() == draw(), "run: python -m tests.database.diagrams"


def test_every_rule_is_named_in_the_model_docs() -> None:
    """So that nobody looks in vain for what refused."""
    text = PAGE.read_text()
    assert [
        name for names in RULES.values() for name in names if not re.search(rf"`{name}`", text)
    ] == []
