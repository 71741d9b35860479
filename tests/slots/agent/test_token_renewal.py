"""The agent takes a new token by itself while the present one is still valid, without
interrupting its tasks.
"""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from slots.agent.common.errors import RequestRefused, ServerUnavailable, TokenRejected
from slots.agent.server.client import BerthClient

from .fake_berth import TOKEN, Server

OTHER = "berthm_7_another_one_is_here"


class Door:
    """Both open, or one of them."""

    def __init__(self, server: Server, *open_with: str) -> None:
        self.open_with, self.seen = set(open_with), list[str]()
        server.hooks["heartbeat/"] = self.look

    def look(self, exchange: object) -> None:
        given = exchange.headers["Authorization"].removeprefix("Bearer ")  # type: ignore[attr-defined]
        self.seen.append(given)
        if given in self.open_with:
            exchange.answer(200, {})  # type: ignore[attr-defined]
        else:
            exchange.refuse(401, "bad_token")  # type: ignore[attr-defined]


def reader(file: Path) -> Callable[[], str]:
    return lambda: file.read_text()


@pytest.fixture
def file(tmp_path: Path) -> Path:
    file = tmp_path / "token"
    file.write_text(TOKEN)
    return file


@pytest.fixture
def client(server: Server, file: Path) -> Iterator[BerthClient]:
    client = BerthClient(server.url, reader(file))
    yield client
    client.close()


def test_agent_switches_to_a_new_valid_token(
    server: Server, client: BerthClient, file: Path
) -> None:
    door = Door(server, TOKEN, OTHER)
    assert not client.renew({})
    assert door.seen == [], "nothing is asked for as long as the file is as it was"
    file.write_text(OTHER)
    assert client.renew({"running": 1})
    assert (client.token, door.seen) == (OTHER, [OTHER])


def test_rejected_new_token_is_tried_once_and_the_old_one_stays(
    server: Server, client: BerthClient, file: Path
) -> None:
    door = Door(server, TOKEN)
    file.write_text(OTHER)
    assert not client.renew({})
    assert not client.renew({})
    assert (client.token, door.seen) == (TOKEN, [OTHER])
    client.post("heartbeat/", {})
    assert door.seen[-1] == TOKEN


def test_unanswered_renewal_keeps_the_old_token_and_is_retried(
    server: Server, client: BerthClient, file: Path
) -> None:
    """Whether the new one opens is not known then: one that does not must not take the place of
    one that does.
    """
    server.hooks["heartbeat/"] = lambda exchange: exchange.answer(503, {})
    file.write_text(OTHER)
    with pytest.raises(ServerUnavailable):
        client.renew({})
    assert client.token == TOKEN
    door = Door(server, TOKEN)
    client.post("heartbeat/", {})
    assert door.seen == [TOKEN]
    assert not client.renew({})
    assert (client.token, door.seen[-1]) == (TOKEN, OTHER)


def test_refusal_for_another_reason_accepts_the_new_token(
    server: Server, client: BerthClient, file: Path
) -> None:
    server.hooks["heartbeat/"] = lambda exchange: exchange.refuse(409, "gone")
    file.write_text(OTHER)
    with pytest.raises(RequestRefused):
        client.renew({})
    assert client.token == OTHER


def test_refused_agent_reads_the_token_file_before_it_gives_up(
    server: Server, client: BerthClient, file: Path
) -> None:
    Door(server, OTHER)
    file.write_text(OTHER)
    client.post("heartbeat/", {})
    assert client.token == OTHER
    file.write_text(TOKEN)
    client.token = TOKEN
    try:
        client.post("heartbeat/", {})
    except TokenRejected:
        return
    raise AssertionError("a token that opens nothing was taken")
