"""Logs reach the server in order, whole and bounded, through network cuts and restarts."""

import itertools
import time
from pathlib import Path

from tests.slots.agent.conftest import Agent
from tests.slots.agent.fake_berth import Exchange, Server
from tests.waiting import wait_until


def test_chunks_are_a_second_apart_unless_full(server: Server, agent: Agent) -> None:
    server.order(
        1,
        10,
        commands={"plan": "for i in 1 2 3 4 5 6 7 8 9 10 11 12; do echo line $i; sleep 0.2; done"},
    )
    assert server.result(1, 10)["outcome"] == "planned"
    assert server.log(1, 10) == "".join(f"line {number}\n" for number in range(1, 13))
    at = server.sent_at[1, 10]
    assert len(at) >= 3
    assert all(later - earlier > 0.9 for earlier, later in itertools.pairwise(at[:-1]))


def test_gigabyte_of_output_is_sent_bounded(server: Server, agent: Agent) -> None:
    server.order(
        1,
        10,
        commands={
            "plan": "yes 0123456789abcdef0123456789abcdef | head -c 1000000000; echo; echo the end"
        },
    )
    most = 0
    wait_until(lambda: server.started)
    while (1, 10) not in server.results:
        with server.changed:
            server.changed.wait(0.1)
        state = agent.state / "spool"
        most = max(
            most,
            sum(path.stat().st_size for path in state.rglob("*") if path.is_file())
            if state.exists()
            else 0,
        )
    result = server.result(1, 10)
    text = server.log(1, 10)
    assert result["outcome"] == "planned"
    assert text.endswith("the end\n")
    assert len(text) < 1_110_000
    assert result["log"]["left_out"] == server.left_out[1, 10] > 998_000_000
    assert most < 1_300_000
    status = dict(
        line.split(":", 1)
        for line in Path(f"/proc/{agent.process.pid}/status").read_text().splitlines()
    )
    assert int(status["VmHWM"].split()[0]) < 100_000  # kB


def test_network_cut_loses_no_log_line(server: Server, agent: Agent) -> None:
    server.order(1, 10, commands={"plan": "for i in $(seq 1 30); do echo line $i; sleep 0.1; done"})
    server.wait(lambda: server.log(1, 10))
    cut_until = time.monotonic() + 2.5

    def broken(exchange: Exchange) -> None:
        if time.monotonic() < cut_until:
            exchange.close_connection = True
        else:
            server.hooks.clear()
            exchange.close_connection = True

    server.hooks[""] = broken
    assert server.result(1, 10)["outcome"] == "planned"
    assert server.log(1, 10) == "".join(f"line {number}\n" for number in range(1, 31))


def test_server_that_lost_chunks_gets_them_again(server: Server, agent: Agent) -> None:
    server.order(1, 10, commands={"plan": "for i in $(seq 1 30); do echo line $i; sleep 0.1; done"})
    server.wait(lambda: len(server.logs.get((1, 10), [])) >= 2)
    with server.changed:
        del server.logs[1, 10][1:]
    server.result(1, 10)
    assert server.log(1, 10) == "".join(f"line {number}\n" for number in range(1, 31))


def test_log_keeps_colours_and_masks_secrets(server: Server, agent: Agent) -> None:
    command = (
        "printf '\\033[31mred\\033[0m pass'; sleep 0.3; printf 'word-one\\n'; echo $KEY | base64"
    )
    server.order(1, 10, commands={"plan": command}, secrets={"KEY": "password-one"})
    server.result(1, 10)
    text = server.log(1, 10)
    assert text.startswith("\x1b[31mred\x1b[0m ***\n")
    assert "cGFzc3dvcmQtb25l"[:14] not in text.replace("***", "")
