"""The terraform executor against a scripted program: its calls, its failures, and the rescue of
unsaved states.
"""

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.slots.agent.conftest import Agent
from tests.slots.agent.fake_berth import Server
from tests.waiting import wait_until

from .test_tofu import pack

pytestmark = pytest.mark.oldest_python

FAKE = """#!/bin/sh
echo "$TF_IN_AUTOMATION $*" >> "%(calls)s"
case "$1" in
  version) echo 'a warning'; echo '{"terraform_version": "9.9.9", "platform": "plan9_mips"}' ;;
  init) %(init)s ;;
  plan) for word; do case "$word" in -out=*) echo saved > "${word#-out=}" ;; esac; done; cat *.auto.tfvars.json 2>/dev/null; %(plan)s ;;
  show) %(show)s ;;
  apply) %(apply)s ;;
esac
"""  # noqa: E501
KEPT = json.dumps({"version": 3, "backend": {"type": "http", "config": {}, "hash": 1}})
BACKEND = f"mkdir -p .terraform; echo '{KEPT}' > .terraform/terraform.tfstate"
CHANGE = {"resource_changes": [{"address": "a.b", "change": {"actions": ["delete", "create"]}}]}
LOCKED = "echo 'Error: Error acquiring the state lock'; exit 1"
CRASHED = (
    "printf 'panic: runtime error\\n\\033[31mError: \\033[0mPlugin did not respond\\n'; exit 1"
)


class Fake:
    def __init__(self, server: Server, folder: Path, agent: Agent) -> None:
        self.server, self.folder, self.calls_file, self.agent = (
            server,
            folder,
            folder / "calls",
            agent,
        )
        self.program = folder / "terraform"

    def behave(self, **parts: str) -> None:
        usual = {
            "init": BACKEND,
            "plan": "exit 2",
            "show": f"echo '{json.dumps(CHANGE)}'",
            "apply": "true",
            "calls": str(self.calls_file),
        }
        self.program.write_text(FAKE % {**usual, **parts})
        self.program.chmod(0o755)

    def run(
        self, claim: int = 1, generation: int = 10, step: str = "plan", **work: Any
    ) -> dict[str, Any]:
        self.server.order(
            claim, generation, step, **{"executor": "terraform", "binary": "terraform", **work}
        )
        return self.server.result(claim, generation)

    @property
    def calls(self) -> list[str]:
        return self.calls_file.read_text().splitlines()


@pytest.fixture
def fake(server: Server, start_agent: Callable[..., Agent], tmp_path: Path) -> Fake:
    folder = tmp_path / "bin"
    folder.mkdir()
    agent = start_agent(
        env={"PATH": f"{folder}:{os.environ['PATH']}", "TF_CLI_ARGS": "-destroy", "TF_LOG": "TRACE"}
    )
    fake = Fake(server, folder, agent)
    fake.behave()
    return fake


def test_terraform_is_called_with_the_expected_arguments(fake: Fake, server: Server) -> None:
    planned = fake.run(variables={"region": "eu", "count": 3})
    assert planned["summary"] == {"add": 0, "change": 0, "destroy": 0, "replace": 1}
    assert planned["facts"]["version"] == "9.9.9" and planned["facts"]["platform"] == "plan9_mips"
    words = [call.split()[:2] for call in fake.calls]
    assert words == [["1", "version"], ["1", "init"], ["1", "plan"], ["1", "show"]]
    assert fake.calls[1] == "1 init -input=false"
    assert (
        "-detailed-exitcode" in fake.calls[2]
        and "-input=false" in fake.calls[2]
        and "-no-color" not in " ".join(fake.calls)
    )
    assert '{"region": "eu", "count": 3}' in server.log(1, 10)
    plan = {"digest": planned["digest"], "size": 6, "facts": planned["facts"], "has_file": True}
    assert fake.run(1, 11, "apply", plan=plan)["outcome"] == "applied"
    # In the folder of its plan: no second init.
    assert [call.split()[1] for call in fake.calls[4:]] == ["version", "apply"]
    assert fake.calls[-1].endswith("/out/plan")


def test_values_of_sensitive_variables_are_masked_in_the_log_of_plan_and_apply(
    fake: Fake, server: Server
) -> None:
    fake.behave(
        plan="echo derived: hunter2-hunter2:x default-value; exit 2",
        apply="echo derived: hunter2-hunter2",
    )
    source = server.archive(
        pack(
            {
                "main.tf": (
                    'variable "a" {\n  sensitive = true\n  default = "default-value"\n'
                    '}\nvariable "b" {}\n'
                )
            }
        )
    )
    planned = fake.run(source=source, variables={"a": "hunter2-hunter2", "b": "shown-as-it-is"})
    plan = {"digest": planned["digest"], "size": 6, "facts": planned["facts"], "has_file": True}
    assert (
        fake.run(1, 11, "apply", plan=plan, source=source, variables={"a": "hunter2-hunter2"})[
            "outcome"
        ]
        == "applied"
    )
    assert "derived: ***:x ***" in server.log(1, 10) and '"b": "shown-as-it-is"' in server.log(
        1, 10
    )
    assert "derived: ***" in server.log(1, 11)
    assert "hunter2" not in server.log(1, 10) + server.log(1, 11)


def test_lock_file_of_the_source_is_used(fake: Fake, server: Server) -> None:
    planned = fake.run(source=server.archive(pack({".terraform.lock.hcl": "# locked\n"})))
    assert fake.calls[1] == "1 init -input=false -lockfile=readonly"
    assert len(planned["facts"]["lock_digest"]) == 64


@pytest.mark.parametrize(
    ("parts", "code"),
    [
        ({"init": "echo 'Error: no such backend'; exit 1"}, "init_failed"),
        ({"init": LOCKED}, "state_locked"),
        ({"plan": "echo 'Error: wrong'; exit 1"}, "exit_code"),
        ({"plan": LOCKED}, "state_locked"),
        ({"plan": CRASHED}, "provider_crash"),
        ({"plan": "kill -SEGV $$"}, "killed"),
        (
            {
                "plan": (
                    'for word; do case "$word" in -out=*) rm "${word#-out=}" ;; esac; done; exit 2'
                )
            },
            "exit_code",
        ),
        ({"plan": "exec sleep 300"}, "timeout"),
        ({"show": "echo nothing"}, "not_json"),
        ({"show": "echo '[]'"}, "not_json"),
        ({"show": "echo 'Error: bad plan' >&2; exit 1"}, "exit_code"),
        ({"show": "yes | head -c 40000000"}, "plan_too_large"),
        (
            {
                "plan": (
                    'for word; do case "$word" in -out=*) head -c 1000001 /dev/zero > '
                    '"${word#-out=}" ;; esac; done; exit 2'
                )
            },
            "plan_too_large",
        ),
        ({"plan": "echo 'Error: write: no space left on device'; exit 1"}, "disk_full"),
    ],
)
def test_failed_plan_has_its_code_and_reason(
    parts: dict[str, str], code: str, fake: Fake, server: Server
) -> None:
    fake.behave(**parts)
    result = fake.run(timeout_s=2 if code == "timeout" else 60)
    assert (result["outcome"], result["code"]) == ("failed", code), result
    assert result["reason"] and "\x1b" not in result["reason"]
    assert not server.plans


@pytest.mark.parametrize(
    ("part", "code"),
    [(LOCKED, "state_locked"), (CRASHED, "provider_crash"), ("exit 1", "exit_code")],
)
def test_failed_apply_has_its_code_and_reason(part: str, code: str, fake: Fake) -> None:
    planned = fake.run()
    fake.behave(apply=part)
    plan = {"digest": planned["digest"], "size": 6, "facts": planned["facts"], "has_file": True}
    result = fake.run(1, 11, "apply", plan=plan)
    assert (result["outcome"], result["code"]) == ("failed", code)


# Printed wherever a backend takes its time with the lock.
SLOW_LOCK = "echo 'Acquiring state lock. This may take a few moments...'; "
STILL_LOCKED = (
    "echo 'Releasing state lock. This may take a few moments...'; echo 'Error: Error releasing the "
    "state lock'; exit 1"
)
UNSAVED = "echo state > errored.tfstate; echo 'Error: Failed to save state'; exit 1"


@pytest.mark.parametrize(
    ("part", "code"),
    [
        ("echo 'Error: no such image'; exit 1", "exit_code"),
        (CRASHED, "provider_crash"),
        (UNSAVED, "state_not_saved"),
        (STILL_LOCKED, "exit_code"),
        (LOCKED, "state_locked"),
    ],
)
def test_slow_backend_lock_hides_no_other_reason(part: str, code: str, fake: Fake) -> None:
    planned = fake.run()
    fake.behave(apply=SLOW_LOCK + part)
    plan = {"digest": planned["digest"], "size": 6, "facts": planned["facts"], "has_file": True}
    result = fake.run(1, 11, "apply", plan=plan)
    assert (result["outcome"], result["code"]) == ("failed", code), result
    assert ("lock" in result["reason"]) == (part in (LOCKED, STILL_LOCKED))


def files_left(folder: Path) -> list[str]:
    return sorted(file.name for file in (folder / "state/rescued").glob("*"))


def test_unsaved_state_is_kept_after_an_apply_timeout(
    fake: Fake, server: Server, tmp_path: Path
) -> None:
    hold = "trap 'echo of the apply > errored.tfstate; exit 1' INT; echo applying; "
    fake.behave(apply=f"{hold}while true; do sleep 0.1; done")
    # On a busy machine a short timeout ends before the apply begins: a longer one is tried.
    for claim, timeout_s in enumerate((2, 8, 32, 128), 1):
        planned = fake.run(claim)
        plan = {"digest": planned["digest"], "size": 6, "facts": planned["facts"], "has_file": True}
        result = fake.run(claim, 11, "apply", plan=plan, timeout_s=timeout_s)
        assert (result["outcome"], result["code"]) == ("failed", "timeout")
        if "applying" in server.log(claim, 11) or server.states:
            break
    assert server.states == {(claim, 11): b"of the apply\n"} and "rescued" in result["reason"]
    assert "rescued" in server.log(claim, 11)
    assert files_left(tmp_path) == []


def test_unsaved_state_is_kept_after_the_agent_was_killed(
    fake: Fake, server: Server, tmp_path: Path
) -> None:
    planned = fake.run()
    fake.behave(
        apply=(
            "trap 'echo of the apply > errored.tfstate; exit 1' INT; echo applying; while true; do "
            "sleep 0.1; done"
        )
    )
    plan = {"digest": planned["digest"], "size": 6, "facts": planned["facts"], "has_file": True}
    server.order(1, 11, "apply", executor="terraform", binary="terraform", plan=plan)
    server.wait(lambda: "applying" in server.log(1, 11))
    fake.agent.kill()
    fake.agent.start()
    server.wait(
        lambda: any(run["status"] == "lost" for hello in server.hellos for run in hello["runs"])
    )
    wait_until(lambda: "rescued" in server.log(1, 11), lambda: (fake.agent.log, server.log(1, 11)))
    server.wait(lambda: server.states == {(1, 11): b"of the apply\n"})
    wait_until(lambda: files_left(tmp_path) == [])
    told = next(
        hello for hello in server.hellos if any(run["status"] == "lost" for run in hello["runs"])
    )
    told_at = [at for at, call in enumerate(server.calls) if call == ("POST", "hello/")]
    uploaded_at = server.calls.index(("PUT", "tasks/1/11/state/"))
    # The server knows of the state before it frees the slot: by an earlier upload, or by the hello.
    assert uploaded_at < told_at[server.hellos.index(told)] or told["states"] == [
        {"claim": 1, "generation": 11, "size": 13}
    ]


def test_unsaved_state_is_kept_despite_many_resource_errors(fake: Fake, server: Server) -> None:
    """Red where only the tail of the output says so: credentials that expire during an apply
    fail its resources and its backend, too.
    """
    planned = fake.run()
    errors = (
        "i=0; while [ $i -lt 4000 ]; do echo 'Error: the credentials have expired'; "
        "i=$((i + 1)); done"
    )
    fake.behave(
        apply=f"echo state > errored.tfstate; echo 'Error: Failed to save state'; {errors}; exit 1"
    )
    plan = {"digest": planned["digest"], "size": 6, "facts": planned["facts"], "has_file": True}
    result = fake.run(1, 11, "apply", plan=plan)
    assert (result["outcome"], result["code"]) == ("failed", "state_not_saved")
    assert server.states == {(1, 11): b"state\n"} and "rescued" in result["reason"]


def unsaved(fake: Fake, server: Server) -> None:
    """An apply whose state the backend did not take."""
    planned = fake.run()
    fake.behave(apply=UNSAVED)
    plan = {"digest": planned["digest"], "size": 6, "facts": planned["facts"], "has_file": True}
    server.order(1, 11, "apply", executor="terraform", binary="terraform", plan=plan)


def test_state_is_uploaded_before_the_result_despite_an_outage(
    fake: Fake, server: Server, tmp_path: Path
) -> None:
    tries = []
    server.hooks["tasks/1/11/state/"] = lambda exchange: (
        tries.append(1),
        exchange.answer(507, raw=b"full"),
    )  # type: ignore[func-returns-value]
    unsaved(fake, server)
    server.wait(lambda: len(tries) >= 2)
    assert (1, 11) not in server.results
    assert files_left(tmp_path) == ["1-11.tfstate"]
    server.hooks.clear()
    assert server.result(1, 11)["code"] == "state_not_saved"
    assert server.states == {(1, 11): b"state\n"}


def test_state_that_the_server_refuses_stays_and_the_result_says_so(
    fake: Fake, server: Server, tmp_path: Path
) -> None:
    server.hooks["tasks/1/11/state/"] = lambda exchange: exchange.refuse(413, "too_large")
    unsaved(fake, server)
    result = server.result(1, 11)
    assert result["state"] == {"size": 6}
    assert str(tmp_path / "state/rescued/1-11.tfstate") in result["reason"]
    assert files_left(tmp_path) == ["1-11.tfstate"]
    server.hooks.clear()
    fake.agent.kill()
    del server.results[1, 11]
    fake.agent.start()
    server.wait(lambda: server.states == {(1, 11): b"state\n"})
    wait_until(lambda: files_left(tmp_path) == [])


def test_slot_is_not_reported_stopped_while_its_state_is_uploading(
    fake: Fake, server: Server
) -> None:
    server.hooks["tasks/1/11/state/"] = lambda exchange: exchange.answer(507, raw=b"full")
    unsaved(fake, server)
    server.wait(lambda: ("PUT", "tasks/1/11/state/") in server.calls)
    server.cancel(1, 11)
    asked = server.calls.count(("GET", "orders/"))
    server.wait(lambda: server.calls.count(("GET", "orders/")) > asked + 1)
    assert server.stopped == []
    server.hooks.clear()
    server.wait(lambda: server.stopped == [(1, 11)])
    assert server.states == {(1, 11): b"state\n"}


def test_state_that_a_person_gave_up_is_removed(fake: Fake, server: Server, tmp_path: Path) -> None:
    server.hooks["tasks/1/11/state/"] = lambda exchange: exchange.answer(
        200, {"is_kept": False, "digest": ""}
    )
    unsaved(fake, server)
    assert "state" not in server.result(1, 11)
    assert files_left(tmp_path) == []


def test_state_upload_counts_only_when_confirmed(
    fake: Fake, server: Server, tmp_path: Path
) -> None:
    server.hooks["tasks/1/11/state/"] = lambda exchange: exchange.answer(200, {})
    unsaved(fake, server)
    server.wait(lambda: server.calls.count(("PUT", "tasks/1/11/state/")) >= 2)
    assert (1, 11) not in server.results
    assert files_left(tmp_path) == ["1-11.tfstate"]


def test_ending_agent_uploads_its_state_first(fake: Fake, server: Server, tmp_path: Path) -> None:
    planned = fake.run()
    fake.behave(
        apply=(
            "trap 'echo of the apply > errored.tfstate; exit 1' INT TERM; echo applying; while "
            "true; do sleep 0.1; done"
        )
    )
    plan = {"digest": planned["digest"], "size": 6, "facts": planned["facts"], "has_file": True}
    server.order(1, 11, "apply", executor="terraform", binary="terraform", plan=plan)
    server.wait(lambda: "applying" in server.log(1, 11))
    assert fake.agent.end(2) == 0
    assert server.states == {(1, 11): b"of the apply\n"}
    assert server.hellos[-1]["runs"][0]["status"] == "lost"


def test_state_file_from_before_the_apply_is_not_rescued(
    fake: Fake, server: Server, tmp_path: Path
) -> None:
    fake.behave(apply="exit 1")
    planned = fake.run(source=server.archive(pack({"errored.tfstate": "of somebody\n"})))
    plan = {"digest": planned["digest"], "size": 6, "facts": planned["facts"], "has_file": True}
    result = fake.run(
        1, 11, "apply", plan=plan, source=server.archive(pack({"errored.tfstate": "of somebody\n"}))
    )
    assert (result["outcome"], result["code"]) == ("failed", "exit_code")
    assert files_left(tmp_path) == [] and server.states == {}


@pytest.mark.parametrize("binary", ["no-such", "../terraform", "a b", "-x", "/no/such"])
def test_missing_terraform_binary_is_reported(binary: str, fake: Fake) -> None:
    result = fake.run(binary=binary)
    assert (result["outcome"], result["code"]) == ("failed", "command_not_found")


def test_sensitive_value_is_not_uploaded(fake: Fake, server: Server) -> None:
    after = {"password": "hunter2", "url": "https://u:named-secret@h"}
    change = {
        "actions": ["create"],
        "before": None,
        "after": after,
        "after_sensitive": {"password": True},
    }
    fake.behave(
        show=f"echo '{json.dumps({'resource_changes': [{'address': 'a.b', 'change': change}]})}'"
    )
    fake.run(secrets={"KEY": "named-secret"})
    text = json.dumps(server.jsons[1, 10])
    assert "hunter2" not in text and "named-secret" not in text and "https://u:***@h" in text


@pytest.mark.parametrize(
    "record",
    ["", "[]", "{", '{"backend": null}', '{"backend": {"type": "local"}}', '{"backend": "http"}'],
)
def test_init_record_without_a_backend_stops_the_plan(record: str, fake: Fake) -> None:
    fake.behave(init=f"mkdir -p .terraform; echo '{record}' > .terraform/terraform.tfstate")
    assert fake.run()["code"] == "no_backend"
    assert [call.split()[1] for call in fake.calls] == ["version", "init"], "nothing was planned"


@pytest.mark.parametrize("kind", ["cloud", "s3", "http"])
def test_cloud_block_counts_as_a_backend(kind: str, fake: Fake) -> None:
    record = json.dumps({"backend": {"type": kind, "config": {}}})
    fake.behave(init=f"mkdir -p .terraform; echo '{record}' > .terraform/terraform.tfstate")
    assert fake.run()["facts"]["backend"] == kind


def test_init_record_linked_out_of_the_folder_is_not_read(fake: Fake, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").write_text(KEPT)
    fake.behave(
        init=f"mkdir -p .terraform; ln -s {tmp_path}/elsewhere .terraform/terraform.tfstate"
    )
    assert fake.run()["code"] == "no_backend"


@pytest.mark.parametrize(
    "said", ["Error: Saved plan is stale", "Error: Saved plan does not match the given state"]
)
def test_stale_plan_is_reported_as_stale(said: str, fake: Fake) -> None:
    planned = fake.run()
    fake.behave(apply=f"echo '{said}'; exit 1")
    plan = {"digest": planned["digest"], "size": 6, "facts": planned["facts"], "has_file": True}
    result = fake.run(1, 11, "apply", plan=plan)
    assert (result["outcome"], result["code"]) == ("failed", "stale_plan")
