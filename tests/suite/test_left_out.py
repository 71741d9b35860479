"""A test run ends with the list of tests that it left out."""

import ast
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.left_out import CHROMIUM, KUBE, OPENTOFU, describe, find_group

TESTS = Path(__file__).resolve().parents[1]
# To import the plugins of all installed packages takes longer than these runs.
FEW_PLUGINS = {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
SKIPS = f"""
import pytest

@pytest.mark.parametrize("n", range(3))
def test_page(n): pytest.skip({CHROMIUM!r})

def test_tofu(): pytest.skip({OPENTOFU!r})

def test_kube(): pytest.skip({KUBE!r})

@pytest.mark.skipif(True, reason="only root becomes another")
def test_root(): pass

def test_own(): pytest.skip("a reason of its own")

def test_pass(): pass
"""


def test_tests_that_need_opentofu_are_selected_by_its_name(tmp_path: Path) -> None:
    """`.ci/run` runs them after the build of OpenTofu, and all other tests during it."""
    (tmp_path / "test_it.py").write_text("def test_apply(tofu): pass\ndef test_plan(): pass\n")
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    command = [sys.executable, "-m", "pytest", "-p", "tests.tofu"]
    command += ["--collect-only", "-q", "--rootdir", str(tmp_path)]
    env = {**os.environ, **FEW_PLUGINS, "PYTEST_ADDOPTS": ""}
    command += ["-c", str(tmp_path / "pytest.ini"), str(tmp_path / "test_it.py"), "-k"]
    for words, selected in (("tofu or kube", "test_apply"), ("not tofu and not kube", "test_plan")):
        done = subprocess.run(
            [*command, words], cwd=TESTS.parent, env=env, capture_output=True, text=True
        )
        found = [line for line in done.stdout.splitlines() if "::" in line]
        assert found == [f"test_it.py::{selected}"], done.stdout + done.stderr


@pytest.mark.parametrize("ci", [{}, {"CI": "true"}], ids=["by hand", "in CI"])
@pytest.mark.parametrize("workers", [[], ["-n", "2"]], ids=["one process", "two workers"])
def test_left_out_tests_are_grouped_last_and_fail_ci(
    tmp_path: Path, workers: list[str], ci: dict[str, str]
) -> None:
    (tmp_path / "test_it.py").write_text(SKIPS)
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-p",
        "xdist",
        "-p",
        "tests.left_out",
        "-ra",
        *workers,
        "--rootdir",
        str(tmp_path),
    ]
    done = subprocess.run(
        [*command, "-c", str(tmp_path / "pytest.ini"), str(tmp_path / "test_it.py")],
        cwd=TESTS.parent,
        capture_output=True,
        text=True,
        env={name: value for name, value in os.environ.items() if name != "CI"} | FEW_PLUGINS | ci,
    )
    lines = done.stdout.splitlines()
    assert done.returncode == len(ci), done.stdout + done.stderr
    assert ("RED" in lines.pop()) if ci else ("RED" not in done.stdout)
    begin = next(n for n, line in enumerate(lines) if "7 tests were LEFT OUT" in line)
    assert not any("SKIPPED" in line or " passed" in line for line in lines[begin:])
    assert [line.split() for line in lines[begin + 1 :]] == [line.split() for line in describe(
        [CHROMIUM] * 3 + [OPENTOFU, KUBE, "only root becomes another", "a reason of its own"]
    )]  # fmt: skip
    assert lines[begin + 1].split() == [
        "3",
        "in",
        "a",
        "real",
        "browser",
        "include",
        "them:",
        "make",
        "chromium",
    ]


def run_in_ci(folder: Path) -> subprocess.CompletedProcess[str]:
    """The tests of test_it.py in this folder."""
    (folder / "pytest.ini").write_text("[pytest]\n")
    command = [sys.executable, "-m", "pytest", "-p", "tests.left_out", "--rootdir", str(folder)]
    return subprocess.run(
        [*command, "-c", str(folder / "pytest.ini"), str(folder / "test_it.py")],
        cwd=TESTS.parent,
        capture_output=True,
        text=True,
        env={**os.environ, **FEW_PLUGINS, "CI": "true"},
    )


@pytest.mark.parametrize(
    ("reason", "status"),
    [
        (CHROMIUM, 1),
        (OPENTOFU, 1),
        (KUBE, 1),
        ("only root becomes another", 0),
        ("no other Python on this machine", 0),
    ],
)
def test_each_required_part_alone_fails_ci_and_an_optional_part_does_not(
    tmp_path: Path, reason: str, status: int
) -> None:
    (tmp_path / "test_it.py").write_text(
        f"import pytest\n\ndef test_part(): pytest.skip({reason!r})\n"
    )
    done = run_in_ci(tmp_path)
    assert done.returncode == status, done.stdout + done.stderr
    assert "1 tests were LEFT OUT" in done.stdout
    assert ("RED" in done.stdout.splitlines()[-1]) is bool(status)


def test_run_without_left_out_tests_prints_no_summary(tmp_path: Path) -> None:
    (tmp_path / "test_it.py").write_text("def test_pass(): pass\n")
    done = run_in_ci(tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert " 1 passed in " in done.stdout.splitlines()[-1]
    assert "LEFT OUT" not in done.stdout and "RED" not in done.stdout


def test_every_reason_to_skip_has_a_way_to_include_the_test() -> None:
    reasons = []
    for path in TESTS.rglob("*.py"):
        if path == Path(__file__):
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            if (
                isinstance(node, ast.Call)
                and isinstance(node.func, ast.Attribute)
                and node.func.attr in ("skip", "skipif")
            ):
                texts = [
                    *node.args,
                    *(word.value for word in node.keywords if word.arg == "reason"),
                ]
                reasons += [
                    (path.name, text.value)
                    for text in texts
                    if isinstance(text, ast.Constant) and isinstance(text.value, str)
                ]
    assert reasons
    assert [reason for reason in reasons if find_group(reason[1]) is None] == [], (
        "give them a group in tests/left_out.py"
    )
