"""`-p tests.tofu`: a real OpenTofu, as `make tofu` builds it. Where it is missing its tests are left out, and that is said loudly."""

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parent.parent
MISSING = "no OpenTofu: make tofu"


@pytest.fixture(scope="session")
def tofu() -> Iterator[Path]:
    """The binary, in a folder that any system user may enter, as tasks of an agent that is root run as others."""
    built = Path(subprocess.run([ROOT / ".ci/tofu", "--path"], capture_output=True, text=True, check=True).stdout.strip())
    if not os.access(built, os.X_OK):
        pytest.skip(MISSING)
    folder = Path(tempfile.mkdtemp(prefix="berth-tofu-"))
    folder.chmod(0o755)
    binary = folder / "tofu"
    try:
        binary.hardlink_to(built)
    except OSError:
        shutil.copy2(built, binary)
    yield binary
    shutil.rmtree(folder)


@pytest.fixture(scope="session")
def tofu_provider(tofu: Path) -> dict[str, str]:
    """The environment in which tofu finds the provider of tests/tofu_provider: berth.invalid/test/files."""
    built = subprocess.run([ROOT / ".ci/tofu", "--mirror"], capture_output=True, text=True, check=True).stdout.strip()
    if not (Path(built) / "ready").exists():
        pytest.skip(MISSING)
    mirror = tofu.parent / "mirror"
    shutil.copytree(built, mirror)
    config = tofu.parent / "tofu.rc"
    config.write_text(f'provider_installation {{\n  filesystem_mirror {{ path = "{mirror}" }}\n}}\n')
    return {"TF_CLI_CONFIG_FILE": str(config)}


def pytest_terminal_summary(terminalreporter: Any) -> None:
    left_out = [report for report in terminalreporter.getreports("skipped") if MISSING in str(report.longrepr)]
    if left_out:
        line = f"{len(left_out)} tests on a real OpenTofu were LEFT OUT: it is not built here. Needs Go, once: make tofu"
        terminalreporter.write_sep("!", line, red=True, bold=True)
