"""The build context of the image holds all that Berth needs to run, and no secrets of the
checkout.
"""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.end_to_end.stack import COMPILED

ROOT = Path(__file__).resolve().parents[2]
SECRETS = (
    ".env",
    ".env.production",
    "deploy/.env",
    "project/.env",
    "berth.dump",
    "project/tls.key",
    "claims/ca.pem",
)


def read_rules() -> list[tuple[bool, re.Pattern[str]]]:
    """The patterns of .dockerignore, as Docker reads those that are used here; the last that
    matches decides.
    """
    rules = []
    for line in (ROOT / ".dockerignore").read_text().splitlines():
        if not line or line.startswith("#"):
            continue
        is_kept, pattern = line.startswith("!"), line.lstrip("!")
        assert re.fullmatch(r"(\*\*/)?[\w.*-]+", pattern), f"this test cannot read {line}"
        name = re.escape(pattern.removeprefix("**/")).replace(r"\*", "[^/]*")
        prefix = "(.*/)?" if pattern.startswith("**/") else ""
        rules.append((is_kept, re.compile(f"{prefix}{name}(/.*)?")))
    return rules


def is_sent(path: str) -> bool:
    sent = True
    for is_kept, pattern in read_rules():
        if pattern.fullmatch(path):
            sent = is_kept
    return sent


@pytest.mark.parametrize("path", SECRETS)
def test_secret_in_the_checkout_stays_out_of_the_image(path: str) -> None:
    assert not is_sent(path)


def test_build_context_is_enough_to_start_berth(tmp_path: Path) -> None:
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    sent = [path for path in listed.stdout.splitlines() if is_sent(path)]
    assert {path.split("/")[0] for path in sent} == {
        "claims", "examples", "manage.py", "pools", "project", "requirements.txt",
        "requirements-uv.txt", "slots", "templates",
    }  # fmt: skip
    for path in sent:
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / path, tmp_path / path)
    environment = {
        "PATH": os.environ["PATH"],
        "DJANGO_SETTINGS_MODULE": "project.settings.production",
        "SECRET_KEY": "only-to-collect-files",
        "BERTH_HOME": str(tmp_path / "home"),
        # Compiled modules of packages; those of Berth are compiled here, and not kept.
        "PYTHONPYCACHEPREFIX": COMPILED,
        "PYTHONDONTWRITEBYTECODE": "1",
    }
    for command in (["collectstatic", "--noinput", "--verbosity", "0"], ["check"]):
        done = subprocess.run(
            [sys.executable, "manage.py", *command],
            cwd=tmp_path,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr


def test_every_base_image_is_pinned_by_digest() -> None:
    files = [*ROOT.glob("deploy/*Dockerfile"), ROOT / "deploy/compose.yaml"]
    own = re.compile(r"image: berth$")
    lines = [
        line.strip()
        for file in files
        for line in file.read_text().splitlines()
        if re.match(r"\s*(FROM|image:)\s", line)
    ]
    assert len(lines) >= 6
    loose = [
        line
        for line in lines
        if not re.search(r"@sha256:[0-9a-f]{64}\b", line) and not own.search(line)
    ]
    assert loose == []
