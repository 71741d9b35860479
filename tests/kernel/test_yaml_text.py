"""YAML from people: exploding or ambiguous documents are refused where they are read."""

import pytest
import yaml

from claims.scaling.replay import read_changes
from pools.pages.views import read_file
from project.kernel.errors import Invalid
from project.kernel.yaml_text import MAX_TEXT_LENGTH, load_yaml

BOMB = "a: &a [x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"{name}: &{name} [{', '.join([f'*{before}'] * 9)}]\n"
    for before, name in zip("abcdefgh", "bcdefghi", strict=True)
)


@pytest.mark.parametrize(
    "text",
    [
        BOMB,
        "a: &x 1\nb: *x",
        "a: 1\na: 2",
        "[" * 5000,
        "a: 2020-99-99",
        "? [a, b]\n: 1",
        "#" * (MAX_TEXT_LENGTH + 1),
        "a: [1",
    ],
    ids=[
        "a bomb",
        "an alias",
        "a name twice",
        "too deep",
        "no date",
        "a list as a name",
        "too long",
        "not closed",
    ],
)
def test_ambiguous_or_exploding_yaml_is_refused(text: str) -> None:
    with pytest.raises(yaml.YAMLError):
        load_yaml(text)


def test_yaml_of_a_pool_is_read() -> None:
    assert load_yaml("kind: Pool\nname: p\nslots: [any, {lane: plan}]\n") == {
        "kind": "Pool",
        "name": "p",
        "slots": ["any", {"lane": "plan"}],
    }


def test_pool_form_and_replay_refuse_a_yaml_bomb() -> None:
    for read in (lambda: read_file(BOMB), lambda: read_changes(BOMB, "changes")):
        with pytest.raises(Invalid):
            read()
