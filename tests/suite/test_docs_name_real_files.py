"""Guides name files that exist, and links between documents lead somewhere."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
GUIDES = sorted(
    [
        ROOT / "CONTRIBUTING.md",
        ROOT / "docs/architecture.md",
        ROOT / "docs/map.md",
        *(ROOT / "docs/howto").glob("*.md"),
    ]
)
DOCUMENTS = sorted(
    [
        *ROOT.glob("*.md"),
        *(ROOT / "docs").rglob("*.md"),
        *(ROOT / "deploy").rglob("*.md"),
        *(ROOT / "examples").rglob("*.md"),
    ]
)
FOLDERS = "claims|deploy|docs|examples|pools|project|slots|templates|tests"
FILE = re.compile(rf"`((?:(?:{FOLDERS})/[\w./-]*|pyproject\.toml|Makefile|\.ci/[\w-]+))`")
LINK = re.compile(r"\]\(([^)\s]+)\)")
FENCE = re.compile(r"^```.*?^```$", re.M | re.S)


def missing_files(text: str) -> list[str]:
    return [path for path in FILE.findall(text) if not (ROOT / path).exists()]


def anchors_of(path: Path) -> set[str]:
    """Anchors of headings, as GitHub writes them."""
    headings = re.findall(r"^#+ (.+)$", FENCE.sub("", path.read_text()), re.M)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in headings}


def broken_links(document: Path, text: str) -> list[str]:
    found = []
    for link in LINK.findall(text):
        if link.startswith(("https://", "http://")):
            continue
        name, _, anchor = link.partition("#")
        target = document.parent / name if name else document
        if not target.exists() or (anchor and anchor not in anchors_of(target)):
            found.append(link)
    return found


@pytest.mark.parametrize("path", GUIDES, ids=lambda path: str(path.relative_to(ROOT)))
def test_every_file_that_a_guide_names_exists(path: Path) -> None:
    text = path.read_text()
    assert FILE.search(text), "a guide that names no file guides nowhere"
    assert missing_files(text) == []


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_every_link_of_a_document_leads_somewhere(path: Path) -> None:
    assert broken_links(path, path.read_text()) == []


def test_the_map_names_one_file_or_more_on_each_line() -> None:
    lines = [line for line in (ROOT / "docs/map.md").read_text().splitlines() if line[:2] == "- "]
    assert len(lines) >= 60
    assert [line for line in lines if not FILE.search(line)] == []


def test_a_missing_file_is_found() -> None:
    text = "`pools/scaling/victims.py`, `pools/scaling/nowhere.py`, `.ci/nothing` and `/claims/`"
    assert missing_files(text) == ["pools/scaling/nowhere.py", ".ci/nothing"]


def test_a_broken_link_is_found() -> None:
    text = "[a](map.md) [b](map.md#claims) [c](map.md#nothing) [d](gone.md) [e](https://x.example)"
    assert broken_links(ROOT / "docs/glossary.md", text) == ["map.md#nothing", "gone.md"]
