"""Fixtures of the tests over clusters."""

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest


@pytest.fixture(scope="module")
def target() -> Iterator[Path]:
    """Where tasks write. They may be other users than we are, so it is everybody's."""
    found = Path(tempfile.mkdtemp(dir="/var/tmp", prefix="berth-test-"))
    found.chmod(0o777)
    yield found
    shutil.rmtree(found)
