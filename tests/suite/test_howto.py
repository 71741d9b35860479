"""Guides for developers name files that exist."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
GUIDES = sorted((ROOT / "docs" / "howto").glob("*.md"))
# A path of this repository in backticks. Paths with a placeholder, like `<kind>`, do not match.
NAMED = re.compile(r"`([A-Za-z0-9_./-]+\.(?:py|md|sql|html|css|js|toml))`")


def test_there_are_guides() -> None:
    assert GUIDES


@pytest.mark.parametrize("guide", GUIDES, ids=lambda guide: guide.stem)
def test_a_guide_names_files_that_exist(guide: Path) -> None:
    named = NAMED.findall(guide.read_text())
    assert named
    assert [path for path in named if not (ROOT / path).exists()] == []


@pytest.mark.parametrize("guide", GUIDES, ids=lambda guide: guide.stem)
def test_a_guide_has_at_most_30_lines(guide: Path) -> None:
    assert len(guide.read_text().splitlines()) <= 30
