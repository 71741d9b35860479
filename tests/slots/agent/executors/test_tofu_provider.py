"""Applies with a real provider process, built from tests/tofu_provider, whose objects are files."""

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from slots.agent.processes.process_table import list_marked
from tests.slots.agent.conftest import Agent
from tests.slots.agent.fake_berth import Exchange, Server
from tests.slots.agent.processes.test_kills import mark
from tests.waiting import wait_until

from .test_tofu import LIMITS, pack

HEAD = """
terraform {
  required_providers {
    files = { source = "berth.invalid/test/files" }
  }
  backend "http" {
    address        = "%(url)s/state"
    lock_address   = "%(url)s/lock"
    unlock_address = "%(url)s/unlock"
    lock_method    = "POST"
    unlock_method  = "POST"
  }
}
"""
RUN = {"claim": 1, "generation": 11, "step": "apply"}
LOST, RUNNING = {**RUN, "status": "lost"}, {**RUN, "status": "running"}
INTERRUPTED = "Interrupt received"  # by tofu; "Two interrupts received" is said of the second


class Backend:
    """A state and its lock, on the server. A client that does not unlock it leaves it locked."""

    def __init__(self, server: Server) -> None:
        self.state = b""
        self.lock = b""
        self.locked = 0
        server.hooks.update(
            {"/state": self.serve_state, "/lock": self.serve_lock, "/unlock": self.serve_unlock}
        )

    def serve_state(self, exchange: Exchange) -> None:
        if exchange.command == "GET":
            exchange.answer(200, raw=self.state) if self.state else exchange.answer(404)
        else:
            self.state = exchange.body
            exchange.answer(200)

    def serve_lock(self, exchange: Exchange) -> None:
        if self.lock:
            exchange.answer(423, raw=self.lock)
        else:
            self.lock = exchange.body
            self.locked += 1
            exchange.answer(200)

    def serve_unlock(self, exchange: Exchange) -> None:
        self.lock = b""
        exchange.answer(200)

    def known(self) -> list[str]:
        """Objects in the state."""
        return sorted(
            each["name"] for each in json.loads(self.state)["resources"] if each["instances"]
        )


class World:
    """An agent with tofu and the provider, a backend, and a folder for the objects."""

    def __init__(self, server: Server, agent: Agent, folder: Path, env: dict[str, str]) -> None:
        self.server, self.agent, self.folder = server, agent, folder
        self.backend = Backend(server)
        self.gate = folder / "gate"
        self.base: dict[str, Any] = {
            "executor": "terraform",
            "binary": "tofu",
            "limits": LIMITS,
            "env": env,
        }

    def write(self, *objects: str) -> None:
        main = HEAD % {"url": self.server.url} + "".join(objects)
        self.base["source"] = self.server.archive(pack({"main.tf": main}))

    def object(self, name: str, *more: str) -> str:
        lines = "".join(f"  {line}\n" for line in (f'path = "{self.folder}/{name}"', *more))
        return f'resource "files_object" "{name}" {{\n{lines}}}\n'

    def slow(self, name: str, *more: str) -> str:
        return self.object(name, f'gate = "{self.gate}"', *more)

    def begin_apply(self, **work: Any) -> None:
        self.server.order(1, 10, **self.base)
        planned = self.server.result(1, 10)
        assert planned["outcome"] == "planned", self.server.log(1, 10)
        plan = {
            "digest": planned["digest"],
            "size": 1,
            "facts": planned["facts"],
            "summary": planned["summary"],
            "has_file": True,
        }
        self.server.order(1, 11, "apply", plan=plan, **{**self.base, **work})

    def is_begun(self, name: str) -> bool:
        return (self.folder / f"{name}.begun").exists()

    def made(self) -> list[str]:
        """Objects that exist."""
        return sorted(name for name in ("one", "two", "three") if (self.folder / name).exists())

    def kept_log(self) -> str:
        """The log that a reaper writes for a run of a dead agent."""
        return (self.agent.state / "spool" / "1-11" / "head").read_text()


@pytest.fixture
def world(
    server: Server,
    start_agent: Callable[..., Agent],
    tofu: Path,
    tofu_provider: dict[str, str],
    tmp_path: Path,
) -> World:
    agent = start_agent(env={"PATH": f"{tofu.parent}:{os.environ['PATH']}"})
    folder = tmp_path / "objects"
    folder.mkdir()
    world = World(server, agent, folder, tofu_provider)
    world.write(world.object("one"), world.slow("two", "depends_on = [files_object.one]"))
    return world


def test_apply_creates_the_objects_of_a_provider(world: World, server: Server) -> None:
    world.gate.touch()
    world.begin_apply()
    assert server.result(1, 11)["outcome"] == "applied", server.log(1, 11)
    assert world.made() == world.backend.known() == ["one", "two"]
    assert world.backend.locked == 2 and world.backend.lock == b""


def test_cancelled_apply_keeps_finished_and_in_flight_objects_in_its_state(
    world: World, server: Server
) -> None:
    world.begin_apply()
    wait_until(lambda: world.is_begun("two"))
    server.cancel(1, 11)
    server.wait(lambda: INTERRUPTED in server.log(1, 11))
    (told,) = server.wait(lambda: server.interrupts.get((1, 11)))
    assert (told["why"], told["waits_for"], told["more"]) == (
        "the server ended the task",
        ["files_object.two (create)"],
        0,
    )
    assert 590 < told["wait_s"] <= 600
    world.gate.touch()
    result = server.result(1, 11)
    assert result["outcome"] == "cancelled"
    assert result["reason"].endswith("the server ended the task. 2 of 2 changes were done.")
    assert world.made() == world.backend.known() == ["one", "two"]
    assert world.backend.lock == b""
    assert "Two interrupts" not in server.log(1, 11)


def test_timed_out_apply_keeps_its_objects_in_its_state(world: World, server: Server) -> None:
    world.begin_apply(timeout_s=5)
    wait_until(lambda: world.is_begun("two"))
    server.wait(lambda: INTERRUPTED in server.log(1, 11))
    world.gate.touch()
    result = server.result(1, 11)
    assert (result["outcome"], result["code"]) == ("failed", "timeout")
    assert world.made() == world.backend.known() == ["one", "two"]
    assert world.backend.lock == b""


def test_apply_that_ignores_its_interrupt_is_killed(world: World, server: Server) -> None:
    world.begin_apply(stop_timeout_s=2)
    wait_until(lambda: world.is_begun("two"))
    server.cancel(1, 11)
    result = server.result(1, 11)
    assert result["outcome"] == "cancelled"
    assert result["reason"].endswith("1 of 2 changes was done; not finished: files_object.two.")
    assert world.made() == ["one"], "its object in flight was never made"
    assert list_marked(mark(world.agent)) == []


def test_apply_whose_agent_is_killed_finishes_its_objects_and_unlocks_its_state(
    world: World, server: Server
) -> None:
    world.begin_apply()
    wait_until(lambda: world.is_begun("two"))
    assert world.backend.lock
    world.agent.kill()
    wait_until(lambda: INTERRUPTED in world.kept_log())
    world.gate.touch()
    server.wait(lambda: not world.backend.lock)
    assert world.made() == world.backend.known() == ["one", "two"]
    wait_until(lambda: list_marked(mark(world.agent)) == [])
    world.agent.start()
    server.wait(lambda: LOST in server.hellos[-1]["runs"])
    server.wait(lambda: INTERRUPTED in server.log(1, 11))
    assert "Two interrupts" not in server.log(1, 11)


def test_next_start_of_the_agent_leaves_an_apply_to_the_reaper_that_ends_it(
    world: World, server: Server
) -> None:
    world.begin_apply()
    wait_until(lambda: world.is_begun("two"))
    world.agent.kill()
    world.agent.start()
    server.wait(lambda: RUNNING in server.hellos[-1]["runs"])
    server.cancel(1, 11)
    server.order(2, 20, slot=2, commands={"plan": "true"})
    server.result(2, 20)
    assert (1, 11) not in server.stopped, "its slot is not free"
    world.gate.touch()
    server.wait(lambda: LOST in server.hellos[-1]["runs"])
    assert world.made() == world.backend.known() == ["one", "two"]
    assert world.backend.lock == b""
    server.wait(lambda: (1, 11) in server.stopped)


def test_agent_killed_while_a_cancelled_apply_ends_does_not_interrupt_it_again(
    world: World, server: Server
) -> None:
    world.begin_apply()
    wait_until(lambda: world.is_begun("two"))
    server.cancel(1, 11)
    server.wait(lambda: INTERRUPTED in server.log(1, 11))
    world.agent.kill()
    wait_until(lambda: "the agent has died" in world.kept_log())
    world.gate.touch()
    server.wait(lambda: not world.backend.lock)
    assert world.made() == world.backend.known() == ["one", "two"]
    wait_until(lambda: list_marked(mark(world.agent)) == [])
    assert "Two interrupts" not in world.kept_log()


def test_sweep_does_not_end_what_a_reaper_still_ends(world: World, server: Server) -> None:
    world.begin_apply()
    wait_until(lambda: world.is_begun("two"))
    world.agent.kill()
    world.agent.options = ("--sweep", "--sweep-wait", "0.5")
    world.agent.start()
    assert world.agent.process.wait(30) == 5
    assert "1-11" in world.agent.log and "finish" in world.agent.log
    world.gate.touch()
    server.wait(lambda: not world.backend.lock)
    assert world.made() == world.backend.known() == ["one", "two"]
    world.agent.options = ("--sweep",)
    world.agent.start()
    assert world.agent.process.wait(60) == 0


def test_failed_apply_names_the_resource_and_how_many_changes_were_done(
    world: World, server: Server
) -> None:
    fails = world.object(
        "three", 'fails = "its quota is used up"', "depends_on = [files_object.one]"
    )
    world.write(
        world.object("one"), fails, world.object("two", "depends_on = [files_object.three]")
    )
    world.begin_apply()
    result = server.result(1, 11)
    assert (result["outcome"], result["code"]) == ("failed", "exit_code")
    assert "The object cannot be made" in result["reason"]
    assert result["reason"].endswith("1 of 3 changes was done; failed: files_object.three.")
