"""The live tail of the event log: order, resumption, permissions and slow sockets."""

import asyncio
import json
from collections.abc import Callable
from typing import Any

import psycopg
import pytest
from django.contrib.auth.models import User

import pools.http.consumers  # noqa: F401  (which events are about access)
import project.urls  # noqa: F401  (every view, which registers its regions)
from claims.lifecycle.release import release_claim
from pools.access.permissions import Identity
from pools.models import Grant
from pools.roles.services import create_grant, revoke_grant
from project.kernel.db.direct_connection import connect_direct
from project.kernel.events.log import Position, now_position
from project.kernel.live import hub as live_hub
from project.kernel.live.socket import BAD_MESSAGE, SIGNED_OUT, TOO_FAST, LiveSocket, Outbox
from slots.members.services import cordon_member
from tests.dashboard.helpers import chief, claim, identity_of, make_pool, member, person, slot_of
from tests.live_stories import in_thread, play

pytestmark = pytest.mark.django_db(transaction=True)

PATIENCE = 10.0  # seconds until a frame that must come counts as lost


class Somebody:
    """The identity that the test sets."""

    def __init__(self, identity: Identity | None) -> None:
        self.identity = identity

    def identify(self) -> Identity | None:
        return self.identity


class Asked:
    """The roles of a user, read from the database at each call."""

    def __init__(self, user: User) -> None:
        self.user = user

    def identify(self) -> Identity | None:
        return identity_of(self.user)


class Line:
    """A browser at the other end of a socket."""

    def __init__(self, access: Any) -> None:
        self.incoming: asyncio.Queue[Any] = asyncio.Queue()
        self.frames: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        self.closed: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self.gate = asyncio.Event()  # closed: the network accepts no frame
        self.gate.set()
        self.socket = LiveSocket(access, self.send)
        self.incoming.put_nowait({"type": "websocket.connect"})
        self.task = asyncio.create_task(self.socket.run(self.incoming.get))

    async def send(self, message: Any) -> None:
        await self.gate.wait()
        if message["type"] == "websocket.send":
            self.frames.put_nowait(json.loads(message["text"]))
        elif message["type"] == "websocket.close" and not self.closed.done():
            self.closed.set_result(message["code"])

    def say(self, text: str | dict[str, Any]) -> None:
        self.incoming.put_nowait(
            {
                "type": "websocket.receive",
                "text": text if isinstance(text, str) else json.dumps(text),
            }
        )

    async def hear(self, fits: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
        async with asyncio.timeout(PATIENCE):
            while True:
                frame = await self.frames.get()
                if fits(frame):
                    return frame

    async def hang_up(self) -> None:
        self.gate.set()
        self.incoming.put_nowait({"type": "websocket.disconnect"})
        await self.task


def shows(name: str, *words: str) -> Callable[[dict[str, Any]], bool]:
    return lambda frame: (
        frame.get("region") == name and all(word in frame["html"] for word in words)
    )


def paints(slot: int, css: str) -> Callable[[dict[str, Any]], bool]:
    return lambda frame: "cells" in frame and slot in frame["set"].get(css, [])


def test_a_claim_updates_the_live_region_and_the_cell_of_its_slot() -> None:
    make_pool()
    me, slot, start = identity_of(chief()), slot_of("env-1").pk, str(now_position())

    async def story() -> None:
        line = Line(Somebody(me))
        line.say({"watch": ["pool.now:env", "cells:env"], "after": start})
        held = await in_thread(claim)
        await line.hear(paints(slot, "bound"))
        await line.hear(shows("pool.now:env", "bound"))
        await in_thread(lambda: release_claim(claim_id=held.id, generation=held.generation))
        await line.hear(paints(slot, "idle"))
        await line.hang_up()

    play(story)


def test_two_views_of_a_pool_get_the_classes_of_their_own_cells() -> None:
    make_pool()
    me, slot, start = identity_of(chief()), slot_of("env-1").pk, str(now_position())

    async def story() -> None:
        line = Line(Somebody(me))
        line.say({"watch": ["cells:env", "cells.ports:env"], "after": start})
        await in_thread(claim)
        found = {}
        for _ in range(2):
            frame = await line.hear(lambda frame: "cells" in frame)
            found[frame["cells"]] = frame["set"]
        assert found == {
            "cells:env": {"bound": [slot]},
            "cells.ports:env": {"reserved": [slot]},
        }
        await line.hang_up()

    play(story)


def test_a_cordon_closes_the_cells_of_its_member() -> None:
    make_pool()
    me, slot, start = identity_of(chief()), slot_of("env-1").pk, str(now_position())

    async def story() -> None:
        line = Line(Somebody(me))
        line.say({"watch": ["cells:env"], "after": start})
        await in_thread(lambda: cordon_member(member_id=member("env-1").pk, reason="disk"))
        frame = await line.hear(paints(slot, "closed"))
        assert set(frame["set"]) == {"closed"}
        await line.hang_up()

    play(story)


def test_a_reconnecting_socket_gets_what_it_missed() -> None:
    make_pool()
    me, slot = identity_of(chief()), slot_of("env-1").pk

    async def story() -> None:
        first = Line(Somebody(me))
        start = str(await in_thread(now_position))
        first.say({"watch": ["cells:env", "pool.now:env"], "after": start})
        await in_thread(claim)
        await first.hear(paints(slot, "bound"))
        await first.hang_up()  # the last socket: the tail ends with it
        held = await in_thread(lambda: claim(owner="while-away"))
        second = Line(Somebody(me))
        second.say({"watch": ["cells:env", "pool.now:env"], "after": start})
        await second.hear(paints(held.slots[0].id, "bound"))
        await second.hear(shows("pool.now:env", "2"))
        await second.hang_up()

    play(story)


def test_a_late_commit_of_an_earlier_event_id_is_not_skipped() -> None:
    """Ids are drawn before the commit: a reader by id would be past it when it appears."""
    make_pool()
    me, start = identity_of(chief()), str(now_position())

    async def story() -> None:
        line = Line(Somebody(me))
        line.say({"watch": ["pool.events:env"], "after": start})
        late: psycopg.Connection[Any] = await asyncio.to_thread(connect_direct, "late")
        await asyncio.to_thread(late.execute, "BEGIN")
        text = (
            "INSERT INTO kernel_event (verb, pool_id, actor) SELECT 'configure', id, "
            "'late-committer' FROM pools_pool"
        )
        await asyncio.to_thread(late.execute, text)
        await in_thread(lambda: cordon_member(member_id=member("env-1").pk, reason="early"))
        await asyncio.to_thread(late.execute, "COMMIT")
        await line.hear(shows("pool.events:env", "late-committer", "early"))
        await asyncio.to_thread(late.close)
        await line.hang_up()

    play(story)


def test_the_safe_position_lies_before_unpainted_changes() -> None:
    hub_owed = Position(7, 3)

    async def story() -> None:
        hub = live_hub.Hub()
        hub.log.position = Position(9, 1)
        assert hub.safe_position() == Position(9, 1)
        opened = live_hub.OpenedRegion("x", "x", frozenset(), lambda: "")
        hub.watched["x"] = live_hub.WatchedRegion(opened, dirty_since=hub_owed)
        assert hub.safe_position() == hub_owed
        hub.watched["x"] = live_hub.WatchedRegion(opened, painting_since=Position(8, 2))
        assert hub.safe_position() == Position(8, 2)

    asyncio.run(story())


def test_a_socket_too_far_behind_is_told_to_reload(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("project.kernel.live.tail.CATCH_UP", 1)
    monkeypatch.setattr("project.kernel.live.tail.BATCH", 1)
    make_pool()
    me = identity_of(chief())
    start = str(now_position())
    for n in range(3):
        claim(owner=f"o{n}")

    async def story() -> None:
        line = Line(Somebody(me))
        line.say({"watch": ["pool.now:env"], "after": start})
        await line.hear(lambda frame: "reload" in frame)
        await line.hang_up()

    play(story)


def test_a_socket_gets_no_change_of_a_pool_its_user_may_not_see() -> None:
    mine, other = make_pool("mine"), make_pool("other")
    me = identity_of(person("vera", "viewer", pool=mine))
    start, slots = (
        str(now_position()),
        {pool.name: slot_of(f"{pool.name}-1").pk for pool in (mine, other)},
    )

    async def story() -> None:
        line = Line(Somebody(me))
        asked = [
            "cells:other",
            "pool.now:other",
            "cells:mine",
            "overview.pools",
            "overview.events",
            f"member:{slots['other']}",
        ]
        line.say({"watch": asked, "after": start})
        gone = await line.hear(lambda frame: "gone" in frame)
        assert set(gone["gone"]) == {"cells:other", "pool.now:other", f"member:{slots['other']}"}
        await in_thread(lambda: claim("other", owner="secret"))
        await in_thread(lambda: claim("mine", owner="shown"))
        heard = []
        await line.hear(
            lambda frame: (
                heard.append(json.dumps(frame)) or shows("overview.events", "shown")(frame)
            )
        )
        assert not any("secret" in text or '"cells:other"' in text for text in heard)
        await line.hang_up()

    play(story)


def test_withdrawing_a_role_ends_the_regions_it_allowed() -> None:
    pool = make_pool()
    user = person("vera", "viewer", pool=pool)
    start, access = str(now_position()), Asked(user)

    async def story() -> None:
        line = Line(access)
        line.say({"watch": ["cells:env"], "after": start})
        await in_thread(claim)
        await line.hear(lambda frame: "cells" in frame)
        await in_thread(lambda: revoke_grant(Grant.objects.get(user=user).pk))
        await line.hear(lambda frame: "reload" in frame)
        line.say({"watch": ["cells:env"], "after": start})
        await line.hear(lambda frame: frame.get("gone") == ["cells:env"])
        assert not line.socket.watching
        await line.hang_up()

    play(story)


def test_signing_out_closes_the_socket() -> None:
    make_pool()
    me, start = identity_of(chief()), str(now_position())
    access = Somebody(me)

    async def story() -> None:
        line = Line(access)
        line.say({"watch": ["cells:env"], "after": start})
        await line.hear(lambda frame: "hello" in frame)
        access.identity = None
        # Any event about access makes every socket ask again.
        await in_thread(lambda: create_grant(role="viewer", user=person("zoe")))
        async with asyncio.timeout(PATIENCE):
            assert await line.closed == SIGNED_OUT
        await line.hang_up()

    play(story)


def test_an_anonymous_socket_is_closed_without_a_frame() -> None:
    async def story() -> None:
        line = Line(Somebody(None))
        async with asyncio.timeout(PATIENCE):
            assert await line.closed == SIGNED_OUT
            await line.task
        assert line.frames.empty()

    play(story)


@pytest.mark.parametrize(
    "text",
    [
        "not json",
        "[]",
        '{"watch": ["overview.pools"]}',  # without a position
        '{"watch": "overview.pools", "after": "1.0"}',
        '{"watch": [7], "after": "1.0"}',
        '{"watch": ["overview.pools"], "after": "-1.x"}',
        json.dumps({"watch": [f"pool.now:{n}" for n in range(100)], "after": "1.0"}),
        json.dumps({"watch": ["x" * 20_000], "after": "1.0"}),
    ],
)
def test_a_malformed_message_closes_the_socket(text: str) -> None:
    me = identity_of(chief())

    async def story() -> None:
        line = Line(Somebody(me))
        line.say(text)
        async with asyncio.timeout(PATIENCE):
            assert await line.closed == BAD_MESSAGE
        await line.hang_up()

    play(story)


def test_too_many_messages_close_the_socket() -> None:
    me = identity_of(chief())

    async def story() -> None:
        line = Line(Somebody(me))
        for _ in range(60):
            line.say({"unwatch": []})
        async with asyncio.timeout(PATIENCE):
            assert await line.closed == TOO_FAST
        await line.hang_up()

    play(story)


def test_a_slow_socket_has_a_bounded_outbox_and_is_told_to_reload() -> None:
    make_pool(members=4)
    me, start = identity_of(chief()), str(now_position())

    async def story() -> None:
        slow, quick = Line(Somebody(me)), Line(Somebody(me))
        for line in (slow, quick):
            line.say({"watch": ["cells:env"], "after": start})
            await line.hear(lambda frame: "hello" in frame)
        await in_thread(claim)
        await quick.hear(lambda frame: "cells" in frame)
        slow.gate.clear()
        for n in range(3 * Outbox.LIMIT):
            slow.socket.push(f"cells:{n}", json.dumps({"cells": "cells:env", "set": {}}))
        assert len(slow.socket.outbox) <= Outbox.LIMIT
        await in_thread(lambda: claim(owner="still-live"))
        await quick.hear(lambda frame: "cells" in frame)
        slow.gate.set()
        await slow.hear(lambda frame: "reload" in frame)
        for line in (slow, quick):
            await line.hang_up()

    play(story)


def test_newer_frames_replace_older_ones_and_the_position_goes_last() -> None:
    async def story() -> None:
        outbox = Outbox()
        for key, frame in (("a", "a1"), ("at", "p1"), ("b", "b1"), ("a", "a2"), ("at", "p2")):
            outbox.put(key, frame)
        assert [await outbox.get() for _ in range(len(outbox))] == ["a2", "b1", "p2"]

    asyncio.run(story())


def test_a_region_watched_by_many_sockets_is_rendered_once(monkeypatch: pytest.MonkeyPatch) -> None:
    make_pool()
    me, start = identity_of(chief()), str(now_position())
    painted = []
    original = live_hub.Hub.in_thread

    async def count(self: live_hub.Hub, function: Any, *arguments: Any) -> Any:
        if getattr(function, "__name__", "") == "render":
            painted.append(function)
        return await original(self, function, *arguments)

    monkeypatch.setattr(live_hub.Hub, "in_thread", count)

    async def story() -> None:
        lines = [Line(Somebody(me)) for _ in range(5)]
        for line in lines:
            line.say({"watch": ["pool.now:env"], "after": start})
            await line.hear(lambda frame: "hello" in frame)
        await asyncio.gather(*[asyncio.sleep(0) for _ in range(20)])
        await in_thread(claim)
        for line in lines:
            await line.hear(shows("pool.now:env", "bound"))
        assert len(painted) <= 2  # one for the claim, and one if a joiner was caught up before it
        for line in lines:
            await line.hang_up()

    play(story)
