"""`-p tests.tofu`: a real OpenTofu, as `make tofu` builds it. Where it is missing its tests are
left out (tests.left_out).
"""

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.left_out import OPENTOFU

ROOT = Path(__file__).resolve().parents[1]


def pytest_itemcollected(item: pytest.Item) -> None:
    """`-k tofu` selects each test that needs OpenTofu, also one without the word in its name:
    `.ci/run` selects by it the tests that wait for the build.
    """
    if "tofu" in getattr(item, "fixturenames", ()):
        item.extra_keyword_matches.add("tofu")


def find_tofu() -> Path | None:
    """The binary as it was built; None: it was not."""
    built = Path(
        subprocess.run(
            [ROOT / ".ci/tofu", "--path"], capture_output=True, text=True, check=True
        ).stdout.strip()
    )
    return built if os.access(built, os.X_OK) else None


def place_tofu(built: Path) -> Path:
    """The binary in a new folder that any system user may enter, as tasks of an agent that is
    root run as others.
    """
    folder = Path(tempfile.mkdtemp(prefix="berth-tofu-"))
    folder.chmod(0o755)
    binary = folder / "tofu"
    try:
        binary.hardlink_to(built)
    except OSError:
        shutil.copy2(built, binary)
    return binary


@pytest.fixture(scope="session")
def tofu() -> Iterator[Path]:
    built = find_tofu()
    if built is None:
        pytest.skip(OPENTOFU)
    binary = place_tofu(built)
    yield binary
    shutil.rmtree(binary.parent)


@pytest.fixture(scope="session")
def tofu_provider(tofu: Path) -> dict[str, str]:
    """The environment in which tofu finds the provider of tests/tofu_provider:
    berth.invalid/test/files.
    """
    built = subprocess.run(
        [ROOT / ".ci/tofu", "--mirror"], capture_output=True, text=True, check=True
    ).stdout.strip()
    if not (Path(built) / "ready").exists():
        pytest.skip(OPENTOFU)
    mirror = tofu.parent / "mirror"
    shutil.copytree(built, mirror)
    config = tofu.parent / "tofu.rc"
    config.write_text(
        f'provider_installation {{\n  filesystem_mirror {{ path = "{mirror}" }}\n}}\n'
    )
    return {"TF_CLI_CONFIG_FILE": str(config)}
