"""The command executor: what a claim's commands get, and how their end becomes an outcome."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.slots.agent.conftest import Agent
from tests.slots.agent.fake_berth import Server
from tests.waiting import wait_until

from .test_tofu import pack

NOTHING = {"resource_changes": [{"address": "a", "change": {"actions": ["no-op"]}}]}
ADDS = {
    "resource_changes": [
        {
            "address": "a",
            "change": {"actions": ["create"], "after": {"p": "x"}, "after_sensitive": {"p": True}},
        }
    ]
}


@pytest.mark.parametrize(
    ("plan", "outcome", "code"),
    [
        ("true", "planned", ""),
        ("exit 2", "planned", ""),
        ("exit 1", "failed", "exit_code"),
        ("touch $BERTH_NO_CHANGES", "no_changes", ""),
        ("touch $BERTH_NO_CHANGES; exit 2", "planned", ""),
        (f"echo '{json.dumps(NOTHING)}' > $BERTH_PLAN_JSON; exit 2", "no_changes", ""),
        (f"echo '{json.dumps(ADDS)}' > $BERTH_PLAN_JSON", "planned", ""),
        ("echo nothing > $BERTH_PLAN_JSON", "failed", "not_json"),
        ("echo [] > $BERTH_PLAN_JSON", "failed", "not_json"),
        ("python3 -c 'print(\"[\" * 100000)' > $BERTH_PLAN_JSON", "failed", "not_json"),
        ("head -c 1000001 /dev/zero > $BERTH_PLAN_FILE", "failed", "plan_too_large"),
        ("no-such-program", "failed", "command_not_found"),
        ("./here; exit 126", "failed", "command_not_found"),
        ("kill -9 $$", "failed", "killed"),
        ("ln -s /etc/passwd $BERTH_PLAN_FILE", "failed", "exit_code"),
        ("mkfifo $BERTH_PLAN_FILE", "failed", "exit_code"),
        (
            "ln /etc/hostname $BERTH_PLAN_FILE || exit 1; ln $BERTH_PLAN_FILE $BERTH_PLAN_JSON",
            "failed",
            "exit_code",
        ),
        ("", "failed", "command_not_found"),
        ("yes | head -c 100 >&2; exit 3", "failed", "exit_code"),
    ],
)
def test_plan_command_ends_with_its_outcome_and_code(
    plan: str, outcome: str, code: str, server: Server, agent: Agent
) -> None:
    server.order(1, 10, commands={"plan": plan})
    result = server.result(1, 10)
    assert (result["outcome"], result["code"]) == (outcome, code), result
    assert bool(result["reason"]) == (outcome == "failed")
    if outcome != "planned":
        assert not server.plans and (not server.jsons or outcome == "no_changes")
        wait_until(lambda: not list((agent.state / "work").iterdir()))  # no incomplete folder stays
    if "create" in plan:
        assert result["summary"]["add"] == 1
        assert server.jsons[1, 10]["resource_changes"][0]["change"]["after"] == {
            "p": "(sensitive value)"
        }


def test_plan_digest_covers_saved_plan_output_and_json(server: Server, agent: Agent) -> None:
    """The digest covers the saved plan if there is one, else source, output and JSON."""
    found = []
    for number, plan in enumerate(
        [
            "echo a",
            "echo a",
            "echo b",
            "echo a; echo '{}' > $BERTH_PLAN_JSON",
            "echo a; echo x > $BERTH_PLAN_FILE",
        ]
    ):
        server.order(number, number + 10, commands={"plan": plan})
        found.append(server.result(number, number + 10)["digest"])
    assert found[0] == found[1]
    assert len(set(found)) == 4
    assert len({len(digest) for digest in found}) == 1


def test_task_gets_its_environment_folder_limits_and_secrets(server: Server, agent: Agent) -> None:
    source = server.archive(pack({"sub/a.txt": "content"})) | {"path": "sub"}
    plan = "env; pwd; cat a.txt; id -u; ulimit -c; ulimit -t; ls -la $HOME $TMPDIR"
    work: dict[str, Any] = {
        "env": {"REGION": "eu", "BERTH_CLAIM": "9", "TF_CLI_ARGS_plan": "-destroy"},
        "secrets": {"DB_PASSWORD": "hunter2hunter2"},
    }
    server.order(
        1, 10, commands={"plan": plan}, source=source, workspace="net", limits={"cpu_s": 33}, **work
    )
    server.result(1, 10)
    text = server.log(1, 10)
    found = dict(line.split("=", 1) for line in text.splitlines() if "=" in line)
    assert found["REGION"] == "eu"
    assert (
        found["BERTH_CLAIM"],
        found["BERTH_STEP"],
        found["BERTH_WORKSPACE"],
        found["BERTH_TASK"],
    ) == (
        "1",
        "plan",
        "net",
        "plan_and_apply",
    )
    assert found["HOME"].startswith(str(agent.state / "work" / "1-10"))
    assert found["DB_PASSWORD"] == "***" and "hunter2" not in text
    assert "TF_CLI_ARGS_plan" not in found
    assert not any("TOKEN" in name or "secretsecret" in value for name, value in found.items())
    allowed = {
        "PATH",
        "HOME",
        "TMPDIR",
        "LANG",
        "USER",
        "LOGNAME",
        "TERM",
        "PWD",
        "OLDPWD",
        "SHLVL",
        "_",
        "REGION",
        "DB_PASSWORD",
        "TZ",
        "LC_ALL",
        "LC_CTYPE",
        "PLUGIN_UNIX_SOCKET_DIR",
    }
    extra = {
        name
        for name in found
        if not name.startswith(("BERTH_", "SSL_CERT_")) and "proxy" not in name.lower()
    } - allowed
    assert not extra
    assert "content" in text and "\n0\n33\n" in text


def test_missing_secret_fails_the_task(server: Server, agent: Agent) -> None:
    server.order(1, 10, secrets={"GONE": None})
    result = server.result(1, 10)
    assert (result["outcome"], result["code"]) == ("failed", "secret_missing")
    assert "GONE" in result["reason"]


def test_task_memory_and_cpu_time_are_limited(server: Server, agent: Agent) -> None:
    server.order(
        1,
        10,
        commands={"plan": "python3 -c 'a = bytearray(500_000_000); print(len(a))'"},
        limits={"memory_bytes": 200_000_000},
    )
    result = server.result(1, 10)
    assert (result["outcome"], result["code"]) == ("failed", "out_of_memory"), server.log(1, 10)
    server.order(2, 20, commands={"plan": "while :; do :; done"}, limits={"cpu_s": 1})
    result = server.result(2, 20)
    assert (result["outcome"], result["code"]) == ("failed", "timeout")
    assert "processor time" in result["reason"]


def test_apply_on_another_agent_needs_the_same_source(
    server: Server, agent: Agent, start_agent: Callable[..., Agent], tmp_path: Path
) -> None:
    source = server.archive(pack({"a.txt": "content"}))
    commands = {"plan": "cat a.txt > $BERTH_PLAN_FILE", "apply": "cat a.txt $BERTH_PLAN_FILE"}
    server.order(1, 10, commands=commands, source=source)
    planned = server.result(1, 10)
    agent.end()
    other = tmp_path / "other"
    other.mkdir()
    start_agent(folder=other)
    plan = {"digest": planned["digest"], "size": 7, "facts": planned["facts"], "has_file": True}
    server.order(1, 11, "apply", commands=commands, source=source, plan=plan)
    assert server.result(1, 11)["outcome"] == "applied"
    assert server.log(1, 11) == "contentcontent"
    changed = server.archive(pack({"a.txt": "changed"}))
    server.order(1, 12, "apply", commands=commands, source=changed, plan=plan)
    result = server.result(1, 12)
    assert (result["outcome"], result["code"]) == ("plan_again", "binary_differs")


def test_apply_without_a_plan_does_not_run(server: Server, agent: Agent) -> None:
    server.order(1, 10, "apply", commands={"apply": f"echo ran > {agent.folder}/proof"})
    assert server.result(1, 10)["outcome"] == "failed"
    assert not (agent.folder / "proof").exists()


@pytest.mark.parametrize("task", ["plan", "drift_check"])
def test_drift_is_counted_for_drift_checks_only(task: str, server: Server, agent: Agent) -> None:
    drift = {"resource_drift": [{"change": {"actions": ["update"]}}], "resource_changes": []}
    server.order(
        1, 10, commands={"plan": f"echo '{json.dumps(drift)}' > $BERTH_PLAN_JSON"}, task=task
    )
    result = server.result(1, 10)
    assert result["outcome"] == "no_changes"
    assert result["summary"].get("drift") == (1 if task == "drift_check" else None)


def test_source_path_outside_the_source_is_refused(server: Server, agent: Agent) -> None:
    for number, path in enumerate(["../x", "/etc", "a/../../b", "gone"]):
        server.order(number, 10 + number, source=server.archive(pack({"a": "b"})) | {"path": path})
        result = server.result(number, 10 + number)
        assert (result["outcome"], result["code"]) == (
            "failed",
            "source_failed" if path == "gone" else "source_refused",
        )


def test_plan_json_is_bounded_for_the_server(server: Server, agent: Agent) -> None:
    server.limits["json_bytes"] = 1000
    big = {
        **ADDS,
        "prior_state": {"values": {"root_module": {"resources": [{"values": {"x": "y" * 5000}}]}}},
    }
    agent.end()
    agent.start()
    server.order(1, 10, commands={"plan": f"echo '{json.dumps(big)}' > $BERTH_PLAN_JSON"})
    assert server.result(1, 10)["outcome"] == "planned"
    assert "prior_state" not in server.jsons[1, 10]
    huge = {"resource_changes": ADDS["resource_changes"] * 20}
    server.order(2, 20, commands={"plan": f"echo '{json.dumps(huge)}' > $BERTH_PLAN_JSON"})
    assert server.result(2, 20)["code"] == "plan_too_large"


def test_exploding_plan_json_fails_its_own_plan_only(server: Server, agent: Agent) -> None:
    """180 MB of empty lists: each takes twenty times its text once it is read."""
    server.limits["json_bytes"] = 64_000_000
    agent.end()
    agent.start()
    bomb = (
        'python3 -c \'print("{\\"resource_changes\\": [" + "[[]]," * 36000000 + "0]}")\' > '
        "$BERTH_PLAN_JSON"
    )
    server.order(1, 10, commands={"plan": bomb})
    assert server.result(1, 10)["code"] == "plan_too_large"
    used = int(
        next(
            line.split()[1]
            for line in Path(f"/proc/{agent.process.pid}/status").read_text().splitlines()
            if "VmHWM" in line
        )
    )
    assert used < 200_000  # kB
    server.order(2, 20, slot=2)
    assert server.result(2, 20)["outcome"] == "planned"


def test_failure_reason_is_masked_before_it_is_truncated(server: Server, agent: Agent) -> None:
    """A reason is masked before it is cut."""
    server.order(
        1,
        10,
        commands={"plan": f'echo "Error: {"x" * 585} $PASSWORD"; exit 1'},
        secrets={"PASSWORD": "hunter2hunter2"},
    )
    reason = server.result(1, 10)["reason"]
    assert "xxx" in reason and len(reason) <= 600
    server.wait(lambda: "Berth: " in server.log(1, 10))
    assert "hunter" not in reason + server.log(1, 10)
