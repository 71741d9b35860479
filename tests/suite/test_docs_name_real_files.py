"""Guides name files that exist, and links between documents lead somewhere."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
GUIDES = sorted(
    [
        ROOT / "CONTRIBUTING.md",
        ROOT / "docs/architecture.md",
        ROOT / "docs/claim-path.md",
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
# A step of claim-path.md: a file, then the functions to read there, up to a colon.
STEP = re.compile(r"^\d+\. `([\w./-]+)`(.*?): ", re.M | re.S)
NAME = re.compile(r"`(\w+\.)?(\w+)`")
MOST_STEPS = 24  # with the page itself, a reader opens 25 files
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


def missing_names(text: str) -> list[str]:
    return [
        f"{path}: {name}"
        for path, names in STEP.findall(text)
        for _, name in NAME.findall(names)
        if not re.search(rf"\b{name}\b", (ROOT / path).read_text())
    ]


def test_the_path_of_a_claim_names_functions_of_its_files() -> None:
    text = (ROOT / "docs/claim-path.md").read_text()
    steps = re.findall(r"^(\d+)\. ", text, re.M)
    assert [path for path, _ in STEP.findall(text)] == re.findall(r"^\d+\. `([^`]+)`", text, re.M)
    assert len(steps) == len(STEP.findall(text)) <= MOST_STEPS
    assert missing_names(text) == []


def test_a_missing_function_is_found() -> None:
    text = "1. `pools/scaling/victims.py`, `choose` and `Scaling.nowhere`: the members to remove. "
    assert missing_names(text) == ["pools/scaling/victims.py: nowhere"]


def test_a_missing_file_is_found() -> None:
    text = "`pools/scaling/victims.py`, `pools/scaling/nowhere.py`, `.ci/nothing` and `/claims/`"
    assert missing_files(text) == ["pools/scaling/nowhere.py", ".ci/nothing"]


def test_a_broken_link_is_found() -> None:
    text = "[a](map.md) [b](map.md#claims) [c](map.md#nothing) [d](gone.md) [e](https://x.example)"
    assert broken_links(ROOT / "docs/glossary.md", text) == ["map.md#nothing", "gone.md"]
