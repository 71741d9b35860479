"""docs/model.md and docs/states.md agree with the declared rules and state machines."""

import re

from claims.checks.holding import RULES
from tests.database.diagrams import PAGE, draw, written

MODEL = PAGE.with_name("model.md")


def test_diagrams_match_the_declared_machines() -> None:
    assert written() == draw(), "run: python -m tests.database.diagrams"


def test_every_rule_is_named_in_the_model_docs() -> None:
    text = MODEL.read_text()
    assert [
        name for names in RULES.values() for name in names if not re.search(rf"`{name}`", text)
    ] == []
