"""The terraform executor with a real OpenTofu. The built-in terraform_data needs no download."""

import gzip
import io
import json
import os
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.slots.agent.conftest import Agent
from tests.slots.agent.fake_berth import Exchange, Server
from tests.slots.agent.state_backend import StateServer, kept

MAIN = """
variable "text" { type = string }
variable "password" {
  type      = string
  sensitive = true
  default   = "hunter2-in-a-variable"
}
terraform {
  %(backend)s
}
resource "terraform_data" "one" {
  input            = "${var.text} ${var.password}"
  triggers_replace = [var.text]
  provisioner "local-exec" { command = "echo applied ${var.text} >> %(proof)s" }
}
output "shown" { value = var.text }
output "hidden" {
  value     = var.password
  sensitive = true
}
"""

__all__ = ["kept"]
LIMITS = {"memory_bytes": 1_000_000_000, "cpu_s": 60}


def pack(files: dict[str, str]) -> bytes:
    buffer = io.BytesIO()
    with (
        gzip.GzipFile(fileobj=buffer, mode="wb", mtime=0) as packed,
        tarfile.open(fileobj=packed, mode="w") as tar,
    ):
        for name, text in files.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(text.encode())
            tar.addfile(entry, io.BytesIO(text.encode()))
    return buffer.getvalue()


class Bench:
    def __init__(self, server: Server, agent: Agent, folder: Path, kept: StateServer) -> None:
        self.server, self.agent, self.folder, self.kept = server, agent, folder, kept
        self.proof = folder / "proof"
        self.main = MAIN % {"backend": kept.block("state"), "proof": self.proof}
        self.source = server.archive(pack({"infra/main.tf": self.main})) | {"path": "infra"}

    def run(self, claim: int, generation: int, step: str = "plan", **work: Any) -> dict[str, Any]:
        more = {
            "executor": "terraform",
            "source": self.source,
            "variables": {"text": "first"},
            "binary": "tofu",
            "limits": LIMITS,
            **work,
        }
        self.server.order(claim, generation, step, **more)
        return self.server.result(claim, generation)

    def plan_of(self, result: dict[str, Any], size: int = 1) -> dict[str, Any]:
        return {
            "digest": result["digest"],
            "size": size,
            "facts": result["facts"],
            "has_file": True,
        }


@pytest.fixture
def bench(
    server: Server, start_agent: Callable[..., Agent], tofu: Path, tmp_path: Path, kept: StateServer
) -> Bench:
    return Bench(
        server, start_agent(env={"PATH": f"{tofu.parent}:{os.environ['PATH']}"}), tmp_path, kept
    )


def test_value_derived_from_a_sensitive_variable_is_in_no_log(bench: Bench, server: Server) -> None:
    """`output` of terraform_data repeats its input without the mark."""
    planned = bench.run(1, 10)
    assert bench.run(1, 11, "apply", plan=bench.plan_of(planned))["outcome"] == "applied"
    assert bench.run(2, 20, variables={"text": "second"})["outcome"] == "planned"
    assert "first ***" in server.log(2, 20)
    assert "hunter2" not in server.log(1, 10) + server.log(1, 11) + server.log(2, 20)


def test_tofu_plans_and_applies_once_and_then_has_no_changes(bench: Bench, server: Server) -> None:
    planned = bench.run(1, 10)
    assert (planned["outcome"], planned["exit_code"]) == ("planned", 2), server.log(1, 10)
    assert planned["summary"] == {"add": 1, "change": 0, "destroy": 0, "replace": 0}
    assert planned["facts"]["binary"] == "tofu"
    assert planned["facts"]["version"].startswith("1.12.6")
    assert "\x1b[" in server.log(1, 10)  # colours stay for the page
    assert not bench.proof.exists()
    text = json.dumps(server.jsons[1, 10])
    assert "hunter2" not in text
    assert server.jsons[1, 10]["resource_changes"][0]["address"] == "terraform_data.one"
    applied = bench.run(1, 11, "apply", plan=bench.plan_of(planned))
    assert applied["outcome"] == "applied", server.log(1, 11)
    assert applied["summary"] == {"add": 1, "change": 0, "destroy": 0}
    assert bench.proof.read_text() == "applied first\n"
    again = bench.run(2, 20)
    assert (again["outcome"], again["exit_code"]) == ("no_changes", 0)
    assert (2, 20) not in server.plans


def test_tofu_drift_check_sees_external_changes(bench: Bench, server: Server) -> None:
    planned = bench.run(1, 10)
    assert bench.run(1, 11, "apply", plan=bench.plan_of(planned))["outcome"] == "applied"
    checked = bench.run(2, 20, task="drift_check")
    assert checked["outcome"] in ("no_changes", "planned"), server.log(2, 20)
    assert checked["summary"]["drift"] == 0


def test_tofu_applies_a_plan_of_another_agent(
    bench: Bench, server: Server, start_agent: Callable[..., Agent], tmp_path: Path
) -> None:
    planned = bench.run(1, 10)
    bench.agent.end()
    other = tmp_path / "other"
    other.mkdir()
    start_agent(folder=other, env=bench.agent.env)
    applied = bench.run(1, 11, "apply", plan=bench.plan_of(planned))
    assert applied["outcome"] == "applied", server.log(1, 11)
    assert bench.proof.read_text() == "applied first\n"


def test_tofu_of_another_version_plans_again(bench: Bench, server: Server) -> None:
    planned = bench.run(1, 10)
    plan = bench.plan_of(planned)
    result = bench.run(
        1, 11, "apply", plan={**plan, "facts": {**plan["facts"], "version": "1.0.0"}}
    )
    assert (result["outcome"], result["code"]) == ("plan_again", "binary_differs")
    assert "1.0.0 when planned" in result["reason"]
    assert not bench.proof.exists()


def test_tofu_failure_names_its_reason(bench: Bench, server: Server) -> None:
    broken = (
        f"terraform {{\n  {bench.kept.block('broken')}\n"
        f'}}\nresource "terraform_data" "one" {{ input = local.nothing }}\n'
    )
    source = server.archive(pack({"main.tf": broken}))
    failed = bench.run(1, 10, source=source)
    assert (failed["outcome"], failed["code"], failed["exit_code"]) == ("failed", "exit_code", 1)
    assert "Error: " in failed["reason"]
    source = server.archive(pack({"main.tf": 'terraform {\n  backend "nowhere" {}\n}'}))
    failed = bench.run(2, 20, source=source)
    assert (failed["outcome"], failed["code"]) == ("failed", "init_failed"), failed
    assert not server.plans


def test_tofu_locked_state_fails_the_plan(bench: Bench, server: Server) -> None:
    """Another apply uses the same state: the test holds the lock for as long as the agent waits
    for it.
    """
    planned = bench.run(1, 10)
    slow = bench.main.replace("echo applied", "sleep 60; echo applied")
    server.order(
        3,
        30,
        executor="terraform",
        source=server.archive(pack({"main.tf": slow})),
        variables={"text": "slow"},
        binary="tofu",
        slot=3,
    )
    other = server.result(3, 30)
    server.order(
        3,
        31,
        "apply",
        executor="terraform",
        source={"kind": "none"},
        binary="tofu",
        slot=3,
        plan=bench.plan_of(other),
    )
    server.wait(lambda: "Creating..." in server.log(3, 31))
    result = bench.run(1, 11, "apply", plan=bench.plan_of(planned))
    assert (result["outcome"], result["code"]) == ("failed", "state_locked"), result
    server.cancel(3, 31)
    server.wait(lambda: (3, 31) in server.stopped)


def test_tofu_state_that_its_backend_refuses_is_rescued(
    bench: Bench, server: Server, tmp_path: Path
) -> None:
    """The apply changed resources, and only the agent knows: it uploads the state before its
    result, and keeps no copy.
    """
    written = []

    def backend(exchange: Exchange) -> None:
        if exchange.command == "GET":
            exchange.answer(404)
        else:
            written.append(exchange.body)
            exchange.answer(507, raw=b"no space left")

    server.hooks["/state"] = backend
    proof = tmp_path / "proof"
    address = (
        f'  backend "http" {{\n    address   = "{server.url}/state"\n    retry_max = 0\n  }}\n'
    )
    main = (
        f'terraform {{\n{address}}}\nresource "terraform_data" "one" {{\n  input = '
        '"kept-by-nobody"\n'
    )
    main += f'  provisioner "local-exec" {{ command = "echo applied >> {proof}" }}\n}}\n'
    bench.source = server.archive(pack({"main.tf": main}))
    planned = bench.run(1, 10)
    assert planned["outcome"] == "planned", server.log(1, 10)
    assert written == []
    plan = {
        "digest": planned["digest"],
        "size": len(server.plans[1, 10]),
        "facts": planned["facts"],
        "has_file": True,
    }
    applied = bench.run(1, 11, "apply", plan=plan)
    assert (applied["outcome"], applied["code"]) == ("failed", "state_not_saved"), server.log(1, 11)
    assert proof.read_text() == "applied\n" and len(written) >= 1
    state = json.loads(server.states[1, 11])
    assert state["resources"][0]["instances"][0]["attributes"]["input"]["value"] == "kept-by-nobody"
    assert list((bench.agent.state / "rescued").iterdir()) == []
    assert "state" not in applied


NO_BACKEND = (
    'resource "terraform_data" "one" {\n  provisioner "local-exec" { command = "echo '
    'applied >> %s" }\n}\n'
)
BACKENDS = {
    "none": ({}, "has no backend"),
    "local": ({"b.tf": 'terraform {\n  backend "local" {}\n}\n'}, "is `local`"),
    "local by JSON": (
        {"b.tf.json": json.dumps({"terraform": {"backend": {"local": {"path": "x"}}}})},
        "is `local`",
    ),
    "overridden by local": (
        {
            "a.tf": (
                'terraform {\n  backend "http" {\n    address = "http://127.0.0.1:9/x"\n  }\n}\n'
            ),
            "b_override.tf": 'terraform {\n  backend "local" {}\n}\n',
        },
        "is `local`",
    ),
}


@pytest.mark.parametrize("name", BACKENDS)
def test_tofu_without_a_persistent_backend_is_refused_after_init(
    name: str, bench: Bench, server: Server
) -> None:
    files, what = BACKENDS[name]
    source = server.archive(pack({"main.tf": NO_BACKEND % bench.proof, **files}))
    refused = bench.run(1, 10, source=source, variables={})
    assert (refused["outcome"], refused["code"]) == ("failed", "no_backend"), server.log(1, 10)
    assert what in refused["reason"] and "state: discard" in refused["reason"]
    assert bench.run(2, 20, source=source, variables={}, task="plan")["outcome"] == "planned", (
        "a plan changes no state"
    )


def test_tofu_backend_by_json_keeps_the_state(bench: Bench, server: Server) -> None:
    address = f"http://127.0.0.1:{bench.kept.server_address[1]}/json"
    backend = json.dumps({"terraform": {"backend": {"http": {"address": address}}}})
    source = server.archive(pack({"main.tf": NO_BACKEND % bench.proof, "backend.tf.json": backend}))
    planned = bench.run(1, 10, source=source, variables={})
    assert (planned["outcome"], planned["facts"]["backend"]) == ("planned", "http"), server.log(
        1, 10
    )


def test_tofu_run_that_discards_its_state_needs_no_backend(bench: Bench, server: Server) -> None:
    source = server.archive(pack({"main.tf": NO_BACKEND % bench.proof}))
    planned = bench.run(1, 10, source=source, variables={}, state="discard")
    assert (planned["outcome"], planned["facts"]["backend"]) == ("planned", "discard"), server.log(
        1, 10
    )
    assert "the state is not kept" in server.log(1, 10)
    applied = bench.run(
        1, 11, "apply", source=source, variables={}, state="discard", plan=bench.plan_of(planned)
    )
    assert applied["outcome"] == "applied", server.log(1, 11)
    assert bench.proof.read_text() == "applied\n"


def test_tofu_run_that_discards_a_persistent_state_is_refused(bench: Bench) -> None:
    refused = bench.run(1, 10, state="discard")
    assert (refused["outcome"], refused["code"]) == ("failed", "has_backend")
    assert "the http backend" in refused["reason"]


def test_tofu_apply_of_an_older_plan_without_a_backend_is_refused(
    bench: Bench, server: Server
) -> None:
    """Planned by an agent that did not look, or by way of another task."""
    source = server.archive(pack({"main.tf": NO_BACKEND % bench.proof}))
    planned = bench.run(1, 10, source=source, variables={}, state="discard")
    plan = bench.plan_of(planned)
    for generation, keep in ((11, True), (12, False)):
        if not keep:
            bench.agent.end()
            (bench.folder / "other").mkdir()
            bench.agent.folder = bench.folder / "other"
            bench.agent.state = bench.agent.folder / "state"
            bench.agent.start()
        refused = bench.run(1, generation, "apply", source=source, variables={}, plan=plan)
        assert (refused["outcome"], refused["code"]) == ("failed", "no_backend"), server.log(
            1, generation
        )
    assert not bench.proof.exists()


def test_tofu_stale_plan_is_reported_as_stale(bench: Bench, server: Server) -> None:
    first = bench.run(1, 10)
    second = bench.run(2, 20)
    assert bench.run(1, 11, "apply", plan=bench.plan_of(first))["outcome"] == "applied"
    stale = bench.run(2, 21, "apply", plan=bench.plan_of(second))
    assert (stale["outcome"], stale["code"]) == ("failed", "stale_plan"), server.log(2, 21)
    assert "no change was applied" in stale["reason"]
