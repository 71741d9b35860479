"""The strict clouds of the tests (`tests/pools/providers/fake_clouds.py`) in their own process.

The product does not import tests: the bench starts a program, which a checkout has.
"""

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from project.kernel.errors import Unavailable
from project.settings import environment as env

PROGRAM = "tests.pools.providers.fake_clouds"
# The keys that the clouds know. Other sources of credentials are switched off.
CREDENTIALS = {
    "AWS_ACCESS_KEY_ID": "AKIDTEST",
    "AWS_SECRET_ACCESS_KEY": "secret",
    "AWS_EC2_METADATA_DISABLED": "true",
    "AWS_CONFIG_FILE": "/nonexistent",
    "AWS_SHARED_CREDENTIALS_FILE": "/nonexistent",
    "TENCENTCLOUD_SECRET_ID": "AKIDtest",
    "TENCENTCLOUD_SECRET_KEY": "secret-of-test",
}
OTHER_CREDENTIALS = (
    "AWS_PROFILE", "AWS_SESSION_TOKEN", "AWS_WEB_IDENTITY_TOKEN_FILE", "TKE_ROLE_ARN",
)  # fmt: skip


@dataclass(frozen=True)
class Clouds:
    process: "subprocess.Popen[str]"
    addresses: Mapping[str, str]  # by kind of provider

    def ask(self, cloud: str, **order: float) -> dict[str, Any]:
        """With an order: sets the limits of a cloud and empties its log. Returns its report."""
        assert self.process.stdin
        print(json.dumps({"cloud": cloud, **order}), file=self.process.stdin, flush=True)
        return self._read()

    def _read(self) -> dict[str, Any]:
        return read_line(self.process)


def read_line(process: "subprocess.Popen[str]") -> dict[str, Any]:
    assert process.stdout
    line = process.stdout.readline()
    if not line:
        raise RuntimeError("the clouds have ended, see stderr")
    answer: dict[str, Any] = json.loads(line)
    return answer


@contextmanager
def running_clouds() -> Iterator[Clouds]:
    """Raises Unavailable outside of a checkout."""
    if not (Path(env.ROOT) / (PROGRAM.replace(".", "/") + ".py")).exists():
        raise Unavailable(
            "The bench `ports` needs the strict clouds in tests/pools/providers.",
            way_out="Run it in a checkout of the repository, after make setup-dev.",
        )
    with subprocess.Popen(
        [sys.executable, "-m", PROGRAM],
        cwd=env.ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdin
        try:
            with _credentials():
                yield Clouds(process, read_line(process))
        finally:
            process.stdin.close()
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()


@contextmanager
def _credentials() -> Iterator[None]:
    """Processes that start in this block use the credentials of the clouds."""
    before = {name: os.environ.get(name) for name in (*CREDENTIALS, *OTHER_CREDENTIALS)}
    for name in OTHER_CREDENTIALS:
        os.environ.pop(name, None)
    os.environ.update(CREDENTIALS)
    try:
        yield
    finally:
        for name, value in before.items():
            os.environ.pop(name, None)
            if value is not None:
                os.environ[name] = value
