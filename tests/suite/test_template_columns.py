"""Templates stay readable: no line over 120 columns, no tabs, no white space at the end
of a line.
"""

from pathlib import Path

import pytest
from django.conf import settings

WIDEST = 120
TEMPLATES = sorted(
    path for folder in settings.TEMPLATES[0]["DIRS"] for path in Path(folder).rglob("*.html")
)


def faults_of(text: str) -> list[str]:
    found = []
    for number, line in enumerate(text.splitlines(), 1):
        if len(line) > WIDEST:
            found.append(f"line {number} has {len(line)} columns")
        if line != line.rstrip() or "\t" in line:
            found.append(f"line {number} has a tab, or white space at its end")
    return found


def test_templates_are_found() -> None:
    assert len(TEMPLATES) > 90


@pytest.mark.parametrize("path", TEMPLATES, ids=lambda path: f"{path.parent.name}/{path.name}")
def test_template_lines_have_at_most_120_columns(path: Path) -> None:
    faults = faults_of(path.read_text())
    assert not faults, (
        f"{path}: {'; '.join(faults)}. Break the line between attributes, or where white space is."
    )


@pytest.mark.parametrize("text", ["x" * 121, "a \nb", "\t<p>"])
def test_wide_line_and_stray_white_space_are_found(text: str) -> None:
    assert faults_of(text)
