"""Applies with a real provider process, which tests/tofu_provider builds. Its objects are files."""

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from .conftest import Agent
from .server import Server
from .test_tofu import LIMITS, pack

HEAD = """
terraform {
  required_providers {
    files = { source = "berth.invalid/test/files" }
  }
  backend "local" { path = "%s" }
}
"""


class World:
    """An agent with tofu and the provider, a folder for its objects, and a state that outlives the task."""

    def __init__(self, server: Server, agent: Agent, folder: Path, env: dict[str, str]) -> None:
        self.server, self.agent, self.folder, self.env = server, agent, folder, env
        self.gate = folder / "gate"
        self.state_file = folder / "terraform.tfstate"
        self.base: dict[str, Any] = {"executor": "terraform", "binary": "tofu", "limits": LIMITS, "env": env}

    def write(self, body: str) -> None:
        self.base["source"] = self.server.archive(pack({"main.tf": HEAD % self.state_file + body}))

    def object(self, name: str, more: str = "") -> str:
        return f'resource "files_object" "{name}" {{\n  path = "{self.folder}/{name}"\n{more}\n}}\n'

    def plan(self, claim: int = 1, generation: int = 10) -> dict[str, Any]:
        self.server.order(claim, generation, **self.base)
        made = self.server.result(claim, generation, 60)
        assert made["outcome"] == "planned", self.server.log(claim, generation)
        return {"digest": made["digest"], "size": 1, "facts": made["facts"], "has_file": True}

    def begin_apply(self, claim: int = 1, generation: int = 11, **work: Any) -> None:
        self.server.order(claim, generation, "apply", plan=self.plan(claim, generation - 1), **{**self.base, **work})

    def known(self) -> list[str]:
        """Objects in the state."""
        return sorted(each["name"] for each in json.loads(self.state_file.read_text())["resources"] if each["instances"])

    def made(self) -> list[str]:
        """Objects that exist."""
        return sorted(name for name in ("one", "two", "three") if (self.folder / name).exists())


@pytest.fixture
def world(server: Server, start_agent: Callable[..., Agent], tofu: Path, tofu_provider: dict[str, str], tmp_path: Path) -> World:
    agent = start_agent(env={"PATH": f"{tofu.parent}:{os.environ['PATH']}"})
    folder = tmp_path / "objects"
    folder.mkdir()
    return World(server, agent, folder, tofu_provider)


def test_apply_makes_the_objects_of_a_provider(world: World, server: Server) -> None:
    world.write(world.object("one") + world.object("two", "  depends_on = [files_object.one]"))
    world.begin_apply()
    assert server.result(1, 11, 60)["outcome"] == "applied", server.log(1, 11)
    assert world.made() == world.known() == ["one", "two"]
