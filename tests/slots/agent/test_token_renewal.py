"""A token that is replaced while the present one still opens: the agent takes it by itself, and
nothing of it stops.
"""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from slots.agent.common.errors import Away, RequestRefused, TokenRejected
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


def test_it_takes_the_new_one_while_the_old_one_opens(
    server: Server, client: BerthClient, file: Path
) -> None:
    door = Door(server, TOKEN, OTHER)
    assert not client.renew({})
    assert door.seen == [], "nothing is asked for as long as the file is as it was"
    file.write_text(OTHER)
    assert client.renew({"running": 1})
    assert (client.token, door.seen) == (OTHER, [OTHER])


def test_one_that_is_not_let_in_is_tried_once_and_the_old_one_goes_on(
    server: Server, client: BerthClient, file: Path
) -> None:
    door = Door(server, TOKEN)
    file.write_text(OTHER)
    assert not client.renew({})
    assert not client.renew({})
    assert (client.token, door.seen) == (TOKEN, [OTHER])
    client.post("heartbeat/", {})
    assert door.seen[-1] == TOKEN


def test_not_answered_it_goes_on_with_the_one_that_opens_and_tries_again(
    server: Server, client: BerthClient, file: Path
) -> None:
    """Whether the new one opens is not known then: one that does not must not take the place of
    one that does.
    """
    server.hooks["heartbeat/"] = lambda exchange: exchange.answer(503, {})
    file.write_text(OTHER)
    with pytest.raises(Away):
        client.renew({})
    assert client.token == TOKEN
    door = Door(server, TOKEN)
    client.post("heartbeat/", {})
    assert door.seen == [TOKEN]
    assert not client.renew({})
    assert (client.token, door.seen[-1]) == (TOKEN, OTHER)


def test_refused_for_another_reason_than_its_token_it_was_let_in(
    server: Server, client: BerthClient, file: Path
) -> None:
    server.hooks["heartbeat/"] = lambda exchange: exchange.refuse(409, "gone")
    file.write_text(OTHER)
    with pytest.raises(RequestRefused):
        client.renew({})
    assert client.token == OTHER


def test_refused_it_reads_the_file_before_it_gives_up(
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
