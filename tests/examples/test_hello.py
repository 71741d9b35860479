"""The example without Terraform works by hand and as a command that Berth runs."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from claims.tasks.run_spec import read_run
from pools.config.parsing import Faults

HERE = Path(__file__).resolve().parents[2] / "examples"
HELLO = HERE / "hello"


@pytest.fixture
def source(tmp_path: Path) -> Path:
    folder = tmp_path / "source"
    folder.mkdir()
    for name in ("hello.py", "harbour.json"):
        (folder / name).write_text((HELLO / name).read_text())
    return folder


def run(source: Path, step: str, **environment: str) -> subprocess.CompletedProcess[str]:
    told = {
        "PATH": os.environ["PATH"],
        "HELLO_TARGET": str(source.parent / "target"),
        "HELLO_PACE": "0",
        **environment,
    }
    (source.parent / "target").mkdir(exist_ok=True)
    return subprocess.run(
        [sys.executable, "-I", str(source / "hello.py"), step],
        env=told,
        capture_output=True,
        text=True,
        timeout=30,
    )


def by_berth(source: Path, claim: int = 7) -> dict[str, str]:
    out = source.parent / f"out-{claim}"
    out.mkdir(exist_ok=True)
    names = {
        "BERTH_PLAN_FILE": "plan",
        "BERTH_PLAN_JSON": "plan.json",
        "BERTH_NO_CHANGES": "no-changes",
    }
    return {name: str(out / file) for name, file in names.items()} | {
        "BERTH_CLAIM": str(claim), "BERTH_GENERATION": "3", "BERTH_WORKSPACE": "team/quay",
    }  # fmt: skip


def test_plan_and_apply_by_hand_leave_no_changes(source: Path) -> None:
    assert run(source, "plan").returncode == 2
    assert run(source, "apply").returncode == 0
    page = source.parent / "target" / "by-hand" / "index.html"
    assert "aurora" in page.read_text()
    again = run(source, "plan")
    assert (again.returncode, "No changes" in again.stdout) == (0, True)


def test_under_berth_the_plan_is_written_as_json(source: Path) -> None:
    told = by_berth(source)
    assert run(source, "plan", **told).returncode == 2
    shown = json.loads(Path(told["BERTH_PLAN_JSON"]).read_text())
    assert [change["change"]["actions"] for change in shown["resource_changes"]] == [["create"]] * 4
    assert not Path(told["BERTH_NO_CHANGES"]).exists()
    assert run(source, "apply", **told).returncode == 0
    assert (source.parent / "target" / "team-quay" / "applied.log").read_text().startswith("7 3 ")
    assert run(source, "plan", **told).returncode == 0
    assert Path(told["BERTH_NO_CHANGES"]).exists()


def test_apply_uses_the_planned_files_not_the_changed_files(source: Path) -> None:
    told = by_berth(source)
    run(source, "plan", **told)
    (source / "harbour.json").write_text(json.dumps({"title": "Another", "ships": {}}))
    assert run(source, "apply", **told).returncode == 0
    assert "aurora" in (source.parent / "target" / "team-quay" / "index.html").read_text()


def test_an_outdated_plan_is_not_applied(source: Path) -> None:
    first, second = by_berth(source, 7), by_berth(source, 8)
    run(source, "plan", **first)
    run(source, "plan", **second)
    assert run(source, "apply", **second).returncode == 0
    late = run(source, "apply", **first)
    assert (late.returncode, "Plan again" in late.stdout) == (1, True)
    assert (
        len((source.parent / "target" / "team-quay" / "applied.log").read_text().splitlines()) == 1
    )


@pytest.mark.parametrize(
    ("task", "given"),
    [
        (
            "plan_and_apply",
            {
                "executor": "command",
                "commands": {"plan": "python3 hello.py plan", "apply": "python3 hello.py apply"},
            },
        ),
        ("plan_and_apply", {"executor": "terraform", "variables": {"target": "/tmp/ships.txt"}}),
    ],
)
def test_the_runs_in_the_readmes_are_valid(task: str, given: dict[str, Any]) -> None:
    names = ["hello.py", "harbour.json"] if given["executor"] == "command" else ["main.tf"]
    folder = HELLO if given["executor"] == "command" else HERE / "terraform-data"
    faults = Faults()
    files = {name: (folder / name).read_text() for name in names}
    assert read_run({**given, "source": {"files": files}}, "run", task, faults) is not None
    assert faults.found == []
