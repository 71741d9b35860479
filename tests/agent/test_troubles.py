"""A machine that is short of everything, and lists that come late: the agent goes on."""

from pathlib import Path
from typing import Any

import pytest

from slots.agent.client import Client
from slots.agent.journal import Journal
from slots.agent.reporting import Reporter
from slots.agent.runner import Context
from slots.agent.state import REPORTED, Record, State
from slots.agent.users import TaskUsers

from .server import TOKEN, Server


@pytest.fixture
def context(server: Server, tmp_path: Path) -> Context:
    base = tmp_path / "work"
    base.mkdir()
    client = Client(server.url, lambda: TOKEN, None)
    return Context(client, State(tmp_path / "state"), base, TaskUsers("same"), "b", "i", Journal(), lambda: None)


def write_record(context: Context, generation: int, **more: Any) -> Record:
    record = Record(1, generation, more.pop("step", "plan"), 1, **more)
    context.state.save(record)
    (context.base / record.name / "src").mkdir(parents=True)
    return record


def test_an_old_generation_leaves_the_folder_of_a_newer_one(context: Context) -> None:
    lost = write_record(context, 9, phase=REPORTED)
    write_record(context, 10, phase=REPORTED, keep=True)
    Reporter(context, lost).report_lost()
    assert not (context.base / "1-9").exists() and (context.base / "1-10").exists()
    Reporter(context, write_record(context, 12, step="apply", phase=REPORTED)).report_lost()
    assert not list(context.base.iterdir())
