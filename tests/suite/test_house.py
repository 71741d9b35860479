"""Each figure of `.ci/house` counts a planted place, names it, and turns the check red."""

import importlib.util
import subprocess
import sys
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parents[2]
# Figure -> the files that raise it, and the places that `--list` names.
PLANTED: dict[str, tuple[dict[str, str], list[str]]] = {
    "pronouns": ({"pools/a.py": '"""Tells somebody."""\n'}, ["pools/a.py:1: somebody"]),
    "test_pronouns": ({"tests/test_a.py": "x = 1  # nobody\n"}, ["tests/test_a.py:1: nobody"]),
    "docs_pronouns": ({"docs/a.md": "Whoever reads.\n"}, ["docs/a.md: Whoever"]),
    "classes": (
        {"pools/a.py": "class Twin: ...\n", "slots/b.py": "class Twin: ...\n"},
        ["Twin: pools/a.py:1, slots/b.py:1"],
    ),
    "wide": ({"claims/a.py": f"x = '{'y' * 95}'\n"}, ["claims/a.py:1"]),
    "folders": ({f"slots/m{n}.py": "" for n in range(3)}, ["3 slots"]),
    "cycles": (
        {
            "pools/a/__init__.py": "",
            "pools/b/__init__.py": "",
            "pools/a/one.py": "from pools.b import two\n",
            "pools/b/two.py": "from ..a.one import x\n",
        },
        ["pools/a, pools/b"],
    ),
    "untyped": (
        {"claims/a.py": "statements.fetch('lock')\nb.statements.texts['read']\n"},
        ["claims/a.py:1: lock", "claims/a.py:2: read"],
    ),
    "templates": ({"templates/a.html": "<p>" + "x" * 118 + "\n"}, ["templates/a.html:1"]),
    "any": ({"project/a.py": "from typing import Any\n"}, ["project/a.py:1"]),
    "tests": (
        {"tests/test_a.py": "def test_who_is_there(): ...\n"},
        ["tests/test_a.py: test_who_is_there"],
    ),
}
SOUND = {
    "claims/sound.py": '"""Counts claims."""\n\nfrom pools import sound\n\nCOUNT = sound.COUNT\n',
    "pools/sound.py": '"""Counts pools."""\n\nCOUNT = 1\n',
    "tests/test_sound.py": "def test_count_is_positive(): ...\n",
    "docs/sound.md": "Pools have members.\n",
    "templates/sound.html": "<p>Pools</p>\n",
}


@pytest.fixture
def house(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The script over a small tree, whose limits are what a tree without a fault has."""
    loader = SourceFileLoader("house", str(ROOT / ".ci/house"))
    spec = importlib.util.spec_from_loader("house", loader)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    loader.exec_module(module)
    monkeypatch.setattr(module, "ROOT", tmp_path)
    limits = dict.fromkeys(module.FIGURES, 0) | {"folders": 2, "cycles": 1}
    lines = [f"{name} = {limit}\n" for name, limit in limits.items()]
    write(tmp_path, {**SOUND, "pyproject.toml": "[tool.house]\n" + "".join(lines)})
    subprocess.run(["git", "init", "-q", str(tmp_path)], check=True)
    return module


def write(root: Path, files: dict[str, str]) -> None:
    for path, text in files.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(text)


def run_house(house: ModuleType, monkeypatch: pytest.MonkeyPatch, *words: str) -> int:
    subprocess.run(["git", "-C", str(house.ROOT), "add", "-A"], check=True)
    monkeypatch.setattr(sys, "argv", ["house", *words])
    found: int = house.main()
    return found


def test_tree_without_a_fault_is_green(house: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    assert run_house(house, monkeypatch) == 0


def test_each_figure_has_a_planted_place(house: ModuleType) -> None:
    assert set(PLANTED) == set(house.FIGURES)


@pytest.mark.parametrize("figure", PLANTED)
def test_figure_is_red_at_its_planted_place_alone(
    figure: str,
    house: ModuleType,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    files, places = PLANTED[figure]
    write(house.ROOT, files)
    assert run_house(house, monkeypatch) == 1
    red = [line for line in capsys.readouterr().out.splitlines() if "too high" in line]
    assert len(red) == 1
    assert red[0].startswith(house.FIGURES[figure])
    assert red[0].endswith(f"--list {figure}")
    assert run_house(house, monkeypatch, "--list", figure) == 0
    listed = capsys.readouterr().out.splitlines()
    assert [line for line in listed if line in places] == places


def test_figure_without_a_limit_is_red(
    house: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = house.ROOT / "pyproject.toml"
    path.write_text(path.read_text().replace("any = 0\n", ""))
    assert run_house(house, monkeypatch) == 1
    assert "must have exactly these limits" in capsys.readouterr().out
