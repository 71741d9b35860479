"""How far an apply came, read from its output."""

import pytest

from slots.agent.executors.progress import Progress

PLANNED = {"add": 2, "change": 1, "destroy": 0, "replace": 1}
SAID = """\x1b[0m\x1b[1mfiles_object.one: Creating...\x1b[0m\x1b[0m
\x1b[0m\x1b[1mfiles_object.one: Creation complete after 0s\x1b[0m
module.a["x: y"].null.two[0]: Modifying... [id=7]
files_object.three: Creating...
files_object.three: Still creating... [10s elapsed]
files_object.four (deposed object 12ab): Destroying... [id=9]
files_object.four (deposed object 12ab): Destruction complete after 1s
\u2577
\u2502 \x1b[1m\x1b[31mError: \x1b[0mThe object cannot be made
\u2502
\u2502   with files_object.three,
\u2502   on main.tf line 20, in resource "files_object" "three":
\u2575
"""


@pytest.mark.parametrize("size", [1, 7, 10_000])
def test_progress_counts_done_failed_and_unfinished_changes(size: int) -> None:
    progress, data = Progress(PLANNED), SAID.encode()
    for at in range(0, len(data), size):
        progress.feed(data[at : at + size])
    assert progress.under_way == {'module.a["x: y"].null.two[0]': "change"}
    expected = (
        '2 of 5 changes were done; failed: files_object.three; not finished: module.a["x: '
        'y"].null.two[0].'
    )
    assert progress.describe() == expected


def test_without_plan_counts_only_done_changes_are_reported() -> None:
    progress = Progress({})
    progress.feed(b"a.b: Creating...\na.b: Creation complete after 1s\n")
    assert progress.describe() == "1 change was done."


def test_many_resource_names_are_counted() -> None:
    progress = Progress({})
    progress.feed(b"".join(b"a.b[%d]: Creating...\n" % number for number in range(8)))
    assert (
        progress.describe()
        == "0 changes were done; not finished: a.b[0], a.b[1], a.b[2], a.b[3], a.b[4] and 3 more."
    )


def test_endless_output_line_uses_little_memory() -> None:
    progress = Progress({})
    for _ in range(100):
        progress.feed(b"x" * 10_000)
    assert len(progress.line) < 10_000
