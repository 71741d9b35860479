"""The agent as one file: it runs on a bare Python, is served by the web server, and builds
reproducibly.
"""

import ast
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from django.test import Client

from slots.agent.version import MODULES, name_version
from slots.agent_build import SOURCE, build_agent, main

from .conftest import OLDEST, OTHER_PYTHONS, Agent, read_version
from .fake_berth import Server


@pytest.fixture
def one_file(tmp_path: Path) -> Path:
    target = tmp_path / "dist" / "berth-agent.pyz"
    assert main([str(target)]) == 0
    return target


def test_agent_file_plans_on_a_bare_python(
    one_file: Path, server: Server, start_agent: Callable[..., Agent]
) -> None:
    agent = start_agent(program=(sys.executable, "-I", "-S", str(one_file)))
    server.order(1, 10, commands={"plan": "echo hello"})
    assert server.result(1, 10)["outcome"] == "planned"
    assert server.log(1, 10) == "hello\n"
    assert server.hellos[0]["version"] == name_version()
    assert agent.end() == 0


@pytest.mark.parametrize(
    "python",
    sorted(OTHER_PYTHONS, key=read_version) or [None],
    ids=str,
)
def test_agent_file_plans_and_applies_on_other_python_versions(
    python: Path | None, one_file: Path, server: Server, start_agent: Callable[..., Agent]
) -> None:
    if python is None:
        pytest.skip("no other Python on this machine")
    agent = start_agent(program=(str(python), "-I", "-S", str(one_file)))
    commands = {
        "plan": "echo made > made; echo saved > $BERTH_PLAN_FILE",
        "apply": "cat made $BERTH_PLAN_FILE",
    }
    server.order(1, 10, commands=commands)
    planned = server.result(1, 10)
    assert planned["outcome"] == "planned"
    plan = {"digest": planned["digest"], "size": 6, "facts": planned["facts"], "has_file": True}
    server.order(1, 11, "apply", commands=commands, plan=plan)
    assert server.result(1, 11)["outcome"] == "applied"
    assert server.log(1, 11).endswith("made\nsaved\n")
    assert agent.end() == 0


@pytest.mark.parametrize(
    "path", sorted(SOURCE.rglob("*.py")), ids=lambda path: path.relative_to(SOURCE).as_posix()
)
def test_agent_module_is_old_python_and_part_of_the_version(path: Path) -> None:
    tree = ast.parse(path.read_text(), feature_version=OLDEST)
    assert path.relative_to(SOURCE).as_posix() in {f"{name}.py" for name in MODULES}
    outside = {
        name
        for node in ast.walk(tree)
        if isinstance(node, ast.Import)
        for alias in node.names
        for name in [alias.name.split(".")[0]]
    }
    outside |= {
        node.module.split(".")[0]
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and not node.level and node.module
    }
    assert outside <= sys.stdlib_module_names


def test_agent_file_is_executable(one_file: Path) -> None:
    shown = subprocess.run(
        [one_file, "--version"], capture_output=True, text=True, check=True, cwd="/"
    )
    assert shown.stdout.strip() == name_version()


def test_agent_file_build_is_reproducible(one_file: Path) -> None:
    build_agent.cache_clear()
    assert build_agent().data == one_file.read_bytes()


def test_web_server_serves_the_agent_without_sign_in() -> None:
    client = Client()
    answer = client.get("/agent/berth-agent.pyz")
    assert answer.status_code == 200
    assert answer.content == build_agent().data
    assert answer["Berth-Agent-Version"] == name_version()
    assert "Cookie" not in answer.get("Vary", "")
    assert (
        client.get("/agent/berth-agent.pyz", headers={"If-None-Match": answer["ETag"]}).status_code
        == 304
    )
    assert client.head("/agent/berth-agent.pyz")["Content-Length"] == str(len(build_agent().data))
    assert client.post("/agent/berth-agent.pyz").status_code == 405


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ([], "--state"),
        (["--state", "/proc/x"], "cannot be used"),
        (["--state", "{tmp}"], "--url"),
        (["--state", "{tmp}", "--url", "http://127.0.0.1:1"], "--token-file"),
        (["--state", "{tmp}", "--url", "nowhere", "--token-file", "/dev/null"], "not the address"),
        (
            ["--state", "{tmp}", "--url", "http://127.0.0.1:1", "--token-file", "{tmp}/none"],
            "cannot be read",
        ),
        (
            ["--state", "{tmp}", "--url", "http://127.0.0.1:1", "--token-file", "/dev/null"],
            "contains no token",
        ),
    ],
)
def test_invalid_agent_option_is_refused_with_a_reason(
    options: list[str], said: str, tmp_path: Path
) -> None:
    filled = [option.replace("{tmp}", str(tmp_path)) for option in options]
    shown = subprocess.run(
        [sys.executable, "-m", "slots.agent", *filled],
        capture_output=True,
        text=True,
        check=False,
        cwd=SOURCE.parent.parent,
    )
    assert shown.returncode == 2
    assert said in shown.stderr and "Traceback" not in shown.stderr
