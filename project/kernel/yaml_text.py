"""Parse untrusted YAML: no aliases, with which 400 bytes can describe gigabytes, and no duplicate
names.
"""

from collections.abc import Hashable, Iterator
from typing import Any

import yaml

MAX_TEXT_LENGTH = 200_000  # characters of a text in a form; PyYAML reads about 100,000 per second


class StrictLoader(yaml.SafeLoader):
    def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
        if self.check_event(yaml.AliasEvent):
            mark = self.peek_event().start_mark  # type: ignore[no-untyped-call]
            raise yaml.MarkedYAMLError(problem="aliases are not read here", problem_mark=mark)
        return super().compose_node(parent, index)

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        seen = set()
        for key, _ in node.value:
            if isinstance(key.value, str):
                if key.value in seen:
                    raise yaml.MarkedYAMLError(
                        problem=f"{key.value!r} is given twice", problem_mark=key.start_mark
                    )
                seen.add(key.value)
        return super().construct_mapping(node, deep=True)


def compose_documents(text: str) -> Iterator[yaml.Node]:
    """The nodes of the documents of a text. Raises yaml.YAMLError and RecursionError."""
    for node in yaml.compose_all(text, Loader=StrictLoader):
        if node is not None:
            yield node


def construct(node: yaml.Node) -> Any:
    return StrictLoader("").construct_document(node)


def load_yaml(text: str) -> Any:
    """The only document of a text; None for an empty text. Raises yaml.YAMLError for
    invalid YAML.
    """
    if len(text) > MAX_TEXT_LENGTH:
        raise yaml.MarkedYAMLError(problem=f"the text is longer than {MAX_TEXT_LENGTH} characters")
    try:
        return yaml.load(text, Loader=StrictLoader)  # noqa: S506  (a SafeLoader)
    except RecursionError:
        raise yaml.MarkedYAMLError(problem="the text is nested too deep") from None
    except (ValueError, TypeError) as error:  # an invalid date, a mapping as a name
        raise yaml.MarkedYAMLError(problem=str(error)[:200]) from None
