"""Pages and paragraphs of the documents stay short."""

import re
from pathlib import Path

import pytest

from tests.suite.test_docs_name_real_files import DOCUMENTS, FENCE, ROOT

MOST_WORDS = 1200  # of a page, with its tables and its code
MOST_PARAGRAPH = 120
CHANGELOG = ROOT / "CHANGELOG.md"
INDENTED = re.compile(r"^ {4,}.*$", re.M)
ITEM = re.compile(r"^(?:[-*]|\d+\.) ", re.M)


def prose(text: str) -> str:
    return INDENTED.sub("", FENCE.sub("", text))


def paragraphs(text: str) -> list[str]:
    """Blocks between blank lines; each item of a list is one. Tables and headings are none."""
    blocks = [
        part.strip()
        for block in re.split(r"\n\s*\n", prose(text))
        for part in ITEM.split(block)
        if part.strip()
    ]
    return [block for block in blocks if not block.startswith(("|", "#"))]


def long_paragraphs(text: str) -> list[str]:
    return [part[:80] for part in paragraphs(text) if len(part.split()) > MOST_PARAGRAPH]


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_a_paragraph_has_at_most_120_words(path: Path) -> None:
    assert long_paragraphs(path.read_text()) == []


@pytest.mark.parametrize(
    "path",
    [path for path in DOCUMENTS if path.is_relative_to(ROOT / "docs")],
    ids=lambda path: str(path.relative_to(ROOT)),
)
def test_a_page_has_at_most_1200_words(path: Path) -> None:
    assert len(path.read_text().split()) <= MOST_WORDS, "split it by subject"


def test_each_entry_of_the_changelog_is_one_line() -> None:
    text = CHANGELOG.read_text()
    entries = text[text.index("### Added") :].splitlines()
    assert [line for line in entries if line and not line.startswith(("- ", "###"))] == []


def test_a_long_paragraph_is_found() -> None:
    short, long = "word " * 120, "long " * 121
    text = f"# Title\n\n{short}\n\n- {short}\n- {long}\n\n```\n{long}\n```\n\n| {long} |\n"
    assert [part[:4] for part in long_paragraphs(text)] == ["long"]
