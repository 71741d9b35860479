"""The time from the commit of a change to its frame in every socket."""

import asyncio
import itertools
import json
import time
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field

from websockets.asyncio.client import ClientConnection, connect

from claims.allocation.bulk import create_claims
from claims.allocation.claim_view import ClaimView
from claims.allocation.requests.claim_request import ClaimRequest
from claims.benches.agent_client import stop
from claims.benches.processes import make_token, running, web_server
from claims.benches.rows.seed import WHO, fill_pools
from claims.lifecycle.release import release_claims
from project.kernel.bench.registry import AT_MOST, BenchRun, Goal, NothingMeasured, bench
from project.kernel.bench.workers import WorkerGroup, latency_figures
from project.kernel.db.sql import run as run_sql
from project.kernel.events.log import Position, now_position

POOL = "live0"
EVERY = 0.05  # seconds between two changes
DONE = 1.0  # seconds after the last change within which its frames must arrive
EVENTS = """
SELECT tx::text::bigint AS tx, id, slot_id, extract(epoch FROM at)::float8 AS at
FROM kernel_event WHERE slot_id IS NOT NULL ORDER BY id"""


class ClaimChanger:
    """Claims and releases many slots at a time, at an even pace."""

    def __init__(self, k: int, n: int, batch: int) -> None:
        self.batch, self.numbers = batch, itertools.count()
        self.held: deque[list[tuple[int, int]]] = deque()
        self.next = 0.0

    def __call__(self) -> int:
        time.sleep(max(0.0, self.next - time.monotonic()))
        self.next = max(self.next, time.monotonic() - EVERY) + EVERY
        if len(self.held) < 20:  # a slot is held for about a second
            requests = [
                ClaimRequest(pools=(POOL,), owner=f"pod:{next(self.numbers)}", requested_by=WHO)
                for _ in range(self.batch)
            ]
            made = create_claims(requests)
            self.held.append(
                [
                    (c.id, c.generation)
                    for c in made
                    if isinstance(c, ClaimView) and c.state == "bound"
                ]
            )
        else:
            release_claims(self.held.popleft())
        return self.batch


@dataclass
class ReceivedFrames:
    """Each frame once, with the times at which the sockets received it."""

    frames: dict[str, list[float]] = field(default_factory=dict)
    others: int = 0

    async def listen(self, socket: ClientConnection) -> None:
        async for frame in socket:
            assert isinstance(frame, str)
            if frame.startswith('{"cells"'):
                self.frames.setdefault(frame, []).append(time.time())
            elif frame.startswith('{"reload"'):
                raise RuntimeError("a socket fell behind and was told to load its page again")
            else:
                self.others += 1


@bench(
    "live",
    "commit of a change to its frame in 200 sockets while 1,000 slots change a second",
    [Goal("p99_ms", 250.0, AT_MOST)],
    needs_valkey=True,
)
def bench_live(run: BenchRun) -> Mapping[str, object]:
    sockets, batch = (10, 5) if run.is_quick else (200, 50)
    fill_pools("live", 1, 128 if run.is_quick else 4000)
    token = make_token("bench")
    with (
        run.reference_around() as around,
        web_server() as (host, port),
        running(["manage.py", "relay"]),
        run.workers("claims.benches.live.ClaimChanger", 1, batch=batch) as workers,
    ):
        received = asyncio.run(
            receive_frames(
                f"ws://{host}:{port}/ws/live/",
                token,
                sockets,
                workers,
                run.seconds(15.0, 2.0),
                str(now_position()),
            )
        )
    late = sorted(latencies(received))
    return {
        **latency_figures(late),
        "sockets": sockets,
        "frames": sum(len(times) for times in received.frames.values()),
        "deliveries": len(late),
        **around,
    }


async def receive_frames(
    url: str, token: str, count: int, workers: WorkerGroup, seconds: float, position: str
) -> ReceivedFrames:
    """Receives frames in `count` sockets during the changes."""
    received = ReceivedFrames()
    headers = {"Authorization": f"Bearer {token}"}
    sockets = [
        await connect(url, additional_headers=headers, max_queue=None, compression=None)
        for _ in range(count)
    ]
    for socket in sockets:
        await socket.send(json.dumps({"watch": [f"cells:{POOL}"], "after": position}))
    listeners = [asyncio.create_task(received.listen(socket)) for socket in sockets]
    await asyncio.sleep(1.0)
    received.frames.clear()
    await asyncio.to_thread(workers.slice, seconds)
    await asyncio.sleep(DONE)
    await stop(listeners)
    for socket in sockets:
        await socket.close()
    return received


def latencies(received: ReceivedFrames) -> list[float]:
    """The latency of every change in every socket: from the event, which is written just before the
    commit, to the first frame of the slot that includes the event. A slot that changes again before
    the next frame is shown in its last state.
    """
    by_slot: dict[int, list[tuple[Position, list[float]]]] = {}
    for text, times in received.frames.items():
        frame = json.loads(text)
        for slot in itertools.chain.from_iterable(frame["set"].values()):
            by_slot.setdefault(slot, []).append((Position.parse(frame["to"]), times))
    found: list[float] = []
    lost = 0
    for tx, number, slot, at in run_sql(EVENTS, prepare=False):
        first = next(
            (times for read, times in by_slot.get(slot, ()) if read >= Position(tx, number)), None
        )
        if first is None:
            lost += 1
        else:
            found += [moment - at for moment in first]
    if not found:
        raise NothingMeasured("no socket received a change.")
    if lost > len(found) / 100:
        raise RuntimeError(f"{lost} changes reached no socket")
    return found
