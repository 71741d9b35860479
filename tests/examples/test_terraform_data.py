"""The Terraform example works with the real OpenTofu binary."""

import os
import subprocess
from pathlib import Path

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "terraform-data"


def test_tofu_applies_the_example_and_then_plans_no_changes(tofu: Path, tmp_path: Path) -> None:
    (tmp_path / "main.tf").write_text((EXAMPLE / "main.tf").read_text())
    told = {
        "PATH": os.environ["PATH"],
        "HOME": str(tmp_path),
        "TF_IN_AUTOMATION": "1",
        "TF_VAR_target": str(tmp_path / "ships.txt"),
    }

    def run(*words: str) -> int:
        done = subprocess.run(
            [str(tofu), *words, "-no-color"],
            cwd=tmp_path,
            env=told,
            capture_output=True,
            text=True,
            timeout=60,
        )
        assert done.returncode in (0, 2), done.stdout + done.stderr
        return done.returncode

    run("init", "-input=false")
    assert run("plan", "-detailed-exitcode", "-input=false", "-out=saved") == 2
    assert run("apply", "saved") == 0
    assert sorted((tmp_path / "ships.txt").read_text().splitlines()) == [
        "aurora carries coffee",
        "meridian carries timber",
    ]
    assert run("plan", "-detailed-exitcode", "-input=false") == 0
