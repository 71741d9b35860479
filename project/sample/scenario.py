"""The claims of the sample: their requests and durations. Pure, standard library only.

The key of a claim determines its whole course, so that a restarted driver can continue the claims
that it finds.
"""

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from random import Random
from typing import Any

RUNNERS = "runners"  # the pool whose number of members follows the demand
ARCADE = "arcade"  # the pool of ports
ROOMS = 10  # listeners of the arcade; their rooms have the numbers behind them
LONG = (15 * 60.0, 25 * 60.0)  # seconds of the few long holds


@dataclass(frozen=True, slots=True)
class SampleTeam:
    """The claims of one pool. Their demand rises above the capacity and falls again."""

    pool: str
    capacity: int  # slots of as many members as the pool may have
    period: float  # seconds from one peak to the next
    low: float  # demand at its lowest and highest, as a share of the capacity
    high: float
    hold: tuple[float, float]  # seconds
    owners: tuple[str, ...]
    # Fields of requests besides the pool; all are equally likely.
    requests: tuple[dict[str, Any], ...]
    phase: float = 0.0  # of the wave, in periods, so that not all pools are full at once
    beat: float = 0.0  # seconds between heartbeats; 0: none
    patience: float = 240.0  # seconds after which a waiting claim is cancelled
    long_share: float = 0.03
    urgent_share: float = 0.08
    longest_queue: int = 12

    @property
    def mean_size(self) -> float:
        return sum(map(size_of, self.requests)) / len(self.requests)

    @property
    def mean_hold(self) -> float:
        return sum(self.hold) / 2 * (1 - self.long_share) + sum(LONG) / 2 * self.long_share


@dataclass(frozen=True, slots=True)
class SampleClaim:
    """One claim, from the request to the release."""

    owner: str
    hold: float
    beat: float
    patience: float
    priority: int = 0
    request: dict[str, Any] = field(default_factory=dict)

    def body(self, pool: str) -> dict[str, Any]:
        return {
            "pools": [pool],
            "owner": self.owner,
            **({"priority": self.priority} if self.priority else {}),
            **self.request,
        }


TEAMS = (
    SampleTeam(
        pool="env-test",
        capacity=20,
        period=420.0,
        low=0.45,
        high=1.45,
        hold=(40.0, 240.0),
        beat=40.0,
        owners=(
            "branch:checkout-{n}",
            "branch:search-{n}",
            "branch:login-{n}",
            "nightly:payments-{n}",
            "nightly:e2e-{n}",
        ),
        requests=(
            {},
            {},
            {},
            {"selector": {"region": "eu"}},
            {"selector": {"region": "us"}},
            {"size": 2, "on_one_member": True},
        ),
    ),
    SampleTeam(
        pool="device-ports",
        capacity=64,
        period=540.0,
        low=0.3,
        high=1.3,
        hold=(20.0, 150.0),
        owners=("service:mqtt-bridge-{n}", "service:turn-{n}", "session:debug-{n}"),
        requests=(
            {"kind": "tcp"},
            {"kind": "tcp"},
            {"kind": "udp"},
            {"kind": "udp", "size": 4, "contiguous": True},
            {"kind": "tcp", "size": 3},
        ),
        phase=0.7,
        long_share=0.02,
        urgent_share=0.0,
    ),
    SampleTeam(
        pool=RUNNERS,
        capacity=8,
        period=300.0,
        low=0.05,
        high=1.1,
        hold=(10.0, 25.0),  # the opening claims end before the first low
        owners=("build:api-{n}", "build:web-{n}", "build:mobile-{n}"),
        requests=(
            {"kind": "build"},
            {"kind": "build"},
            {"kind": "build", "size": 2, "on_one_member": True},
        ),
        phase=0.5,  # falls at first: the opening claims are the first peak
        patience=150.0,
        long_share=0.0,
    ),
    SampleTeam(
        pool=ARCADE,
        capacity=2 * ROOMS,
        period=900.0,
        low=0.3,
        high=1.1,
        hold=(60.0, 900.0),  # each claim costs several calls of the forwarder
        owners=("game:regatta-{n}", "game:chess-{n}", "game:pirates-{n}"),
        requests=(
            {"ports": "7000/TCPUDP"},
            {"ports": "7000/TCPUDP"},
            {"ports": "7000/TCP"},
            {"ports": "7000/TCP,7001/UDP"},
        ),
        phase=0.25,
        long_share=0.02,
        urgent_share=0.0,
    ),
)
BY_POOL = {team.pool: team for team in TEAMS}


def size_of(request: Mapping[str, Any]) -> int:
    """Slots of a request. A port in both protocols takes two."""
    if "ports" in request:
        return sum(1 + port.endswith("TCPUDP") for port in request["ports"].split(","))
    return int(request.get("size", 1))


def count_opening_claims(team: SampleTeam) -> int:
    """Claims of a team soon after the start: more than the capacity, so that some claims wait,
    with their reasons, from the first minute on.
    """
    return round(team.capacity * team.high / team.mean_size)


def key_of(pool: str, nonce: str) -> str:
    return f"{pool}.{nonce}"


def work_of(key: str) -> SampleClaim | None:
    """The claim with this key; None: the key is not of the sample."""
    pool, _, nonce = key.partition(".")
    if not nonce or (team := BY_POOL.get(pool)) is None:
        return None
    draw = Random(key)
    return SampleClaim(
        owner=draw.choice(team.owners).format(n=draw.randint(1000, 9999)),
        hold=draw.uniform(*LONG) if draw.random() < team.long_share else draw.uniform(*team.hold),
        beat=team.beat,
        patience=team.patience * draw.uniform(0.7, 1.3),
        priority=20 if draw.random() < team.urgent_share else 0,
        request=draw.choice(team.requests),
    )


# -- games behind ports ---------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class GameWork:
    """The game of one claim. Times are seconds after the claim is bound."""

    players: int
    opens_after: float  # until then, the target of the port is not healthy
    breaks_after: float  # negative: never
    breaks_for: float
    linger: float  # after the release, so that the port drains


def game_of(key: str) -> GameWork:
    draw = Random(f"{key} game")
    return GameWork(
        players=draw.randint(1, 3),
        opens_after=draw.uniform(2.0, 12.0),
        breaks_after=draw.uniform(20.0, 60.0) if draw.random() < 0.25 else -1.0,
        breaks_for=draw.uniform(15.0, 30.0),
        linger=draw.uniform(5.0, 9.0) if draw.random() < 0.6 else 0.0,
    )


# -- plans that wait for approval ------------------------------------------------------------------

HARBOUR = "harbour"  # the pool whose members are agents
WORKSPACES = (
    "north-quay",
    "south-quay",
    "east-dock",
    "west-dock",
    "ferry-pier",
    "timber-wharf",
    "fish-market",
)
SHIPS = (
    "aurora",
    "meridian",
    "swift",
    "halcyon",
    "petrel",
    "vega",
    "lodestar",
    "marigold",
    "osprey",
    "tern",
)
CARGO = ("coffee", "timber", "mail", "grain", "machines", "passengers", "nothing")
TASKS = (4, 9)  # live at once: at the lowest and at the highest demand, and after the start
TASK_PERIOD = 600.0  # seconds from one peak to the next
VISITORS = 2  # plans left for people
COMMENTS = ("as agreed with the harbour office", "looks right", "the pilot knows", "fine with me")
OBJECTIONS = ("not before the ferry has left", "that berth is too shallow")


@dataclass(frozen=True, slots=True)
class TaskWork:
    """One claim with a plan, and perhaps an apply."""

    task: str
    workspace: str
    owner: str
    harbour: dict[str, object]  # the content of harbour.json
    decide_after: float  # seconds from the plan to the decision of ben
    visitors_for: float  # the same for a plan left to people
    is_approved: bool
    comment: str

    def body(self, program: str) -> dict[str, object]:
        commands = {
            step: f"python3 hello.py {step}"
            for step in (("plan", "apply") if self.task == "plan_and_apply" else ("plan",))
        }
        run = {
            "executor": "command",
            "commands": commands,
            "source": {"files": {"hello.py": program, "harbour.json": self.wanted}},
        }
        return {
            "pools": [HARBOUR],
            "task": self.task,
            "workspace": self.workspace,
            "owner": self.owner,
            "run": run,
        }

    @property
    def wanted(self) -> str:
        return json.dumps(self.harbour, indent=1)


def task_of(key: str) -> TaskWork | None:
    """The task with this key; None: the key is not of a task of the sample."""
    pool, _, nonce = key.partition(".")
    if not nonce or pool != HARBOUR:
        return None
    draw = Random(key)
    workspace = draw.choice(WORKSPACES)
    ships = {
        name: {
            "berth": number + 1,
            "cargo": draw.choice(CARGO),
            "tons": draw.randrange(200, 9000, 100),
        }
        for number, name in enumerate(draw.sample(SHIPS, draw.randint(2, 6)))
    }
    is_approved = draw.random() < 0.85
    return TaskWork(
        task="plan_and_apply" if draw.random() < 0.7 else draw.choice(("plan", "drift_check")),
        workspace=workspace,
        owner=f"workspace:{workspace}",
        harbour={"title": workspace.replace("-", " ").capitalize(), "ships": ships},
        decide_after=draw.uniform(12.0, 50.0),
        visitors_for=draw.uniform(900.0, 1500.0),
        is_approved=is_approved,
        comment=draw.choice(COMMENTS if is_approved else OBJECTIONS),
    )


def demand_at(team: SampleTeam, elapsed: float) -> float:
    """Wanted slots so many seconds after the start of the driver, so that the first minutes show
    the same at any time of day.
    """
    wave = wave_at(elapsed / team.period + team.phase)
    return team.capacity * (team.low + (team.high - team.low) * wave)


def count_tasks_at(elapsed: float) -> int:
    """How many tasks may be live so many seconds after the start: as many as then begin at 0."""
    low, high = TASKS
    return round(low + (high - low) * wave_at(elapsed / TASK_PERIOD + 0.25))


def wave_at(periods: float) -> float:
    """Between 0 and 1, with one peak in each period."""
    return (1 + math.sin(2 * math.pi * periods)) / 2


def pause_before_next(team: SampleTeam, elapsed: float, draw: float) -> float:
    """Seconds to the next arrival, such that arrivals x hold x size equals the demand on average.
    `draw` in [0, 1).
    """
    rate = demand_at(team, elapsed) / team.mean_hold / team.mean_size
    return min(-math.log(1 - draw) / rate, team.period / 4)
