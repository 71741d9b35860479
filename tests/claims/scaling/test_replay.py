"""A replay compares policies over recorded demand with what happened."""

import json
import math
from datetime import UTC, datetime, timedelta
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.utils import timezone

from claims.scaling.replay import figures_of, replay_pool
from pools.lifecycle.services import create_pool
from pools.models import Decision, Member, Pool, Sample
from pools.scaling import (
    Fixed,
    MemberLimits,
    OnDemand,
    ScalingPace,
    ScalingTarget,
    Snapshot,
    Utilisation,
    Warm,
)
from pools.scaling import replay as replays
from pools.scaling.replay import DemandSample, as_it_was, pace_of, replay
from project.kernel.errors import Conflict, Invalid
from tests.claims.scaling.test_scaler import config, make

START = datetime(2026, 3, 9, tzinfo=UTC).timestamp()
WIDE = MemberLimits(1, 12)


def moments(*wanted: int, members: int = 2, each: int = 3) -> list[DemandSample]:
    """Recorded demand, minute by minute, with a fixed number of members."""
    slots = members * each
    return [
        DemandSample(START + 60 * i, members, slots, min(n, slots), 0, max(0, n - slots))
        for i, n in enumerate(wanted)
    ]


def waves(days: float, top: int = 24) -> list[DemandSample]:
    """A usual day with a fixed number of members: too few at noon, too many at night."""
    return moments(
        *(
            round(top * (0.5 - 0.5 * math.cos(2 * math.pi * i / 1440))) + i % 3
            for i in range(round(days * 1440))
        ),
        members=5,
    )


def run(
    found: list[DemandSample], policy: Any, limits: MemberLimits = WIDE, **more: Any
) -> replays.ReplayResult:
    return replay(found, policy, lambda moment: limits, each=3, **more)


def test_recorded_demand_is_counted_as_it_was() -> None:
    outcome = as_it_was(moments(4, 8, 8, 6, 6), each=3)
    assert (outcome.member_hours, outcome.most, outcome.created, outcome.removed) == (
        pytest.approx(2 * 5 / 60),
        2,
        0,
        0,
    )
    assert sorted(outcome.waits) == [0.0] * 6 + [120.0] * 2, (
        "two of the eight came when it was full, and were served when two others went"
    )
    assert outcome.waiting_hours == pytest.approx(2 * 2 / 60)


def test_more_members_wait_less_in_a_replay() -> None:
    day = waves(1)
    was, few, many = as_it_was(day, each=3), run(day, Fixed(5)), run(day, Fixed(9))
    assert was.waiting_hours == pytest.approx(few.waiting_hours, rel=0.1), (
        "the same number of members, replayed"
    )
    assert many.waiting_hours < few.waiting_hours
    assert many.member_hours > few.member_hours
    assert run(day, Utilisation()).wait(0.9) < was.wait(0.9)


@pytest.mark.parametrize(
    "policy",
    [Utilisation(), Utilisation(idle_members=True), Warm(1), OnDemand(), Fixed(4)],
    ids=lambda p: type(p).__name__,
)
def test_skipped_decisions_do_not_change_the_outcome_of_a_replay(
    policy: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Most decisions are left out, because they rest on the same. All of them: the same outcome."""
    day = waves(1)
    quick = run(day, policy)
    monkeypatch.setattr(replays, "BUILT_IN", ())
    whole = run(day, policy)
    assert figures_of(quick) == figures_of(whole)
    assert [p.members for p in quick.points] == [p.members for p in whole.points]


def test_a_custom_policy_is_asked_at_every_step_of_a_replay() -> None:
    class Counting:
        pace = ScalingPace(0, 0, 0, 0)
        asked = 0

        def find_target(self, s: Snapshot) -> ScalingTarget:
            self.asked += 1
            return ScalingTarget(3, "three", "three")

    policy = Counting()
    outcome = run(moments(1, 1, 1, 1), policy)
    assert (policy.asked, outcome.most) == (16, 3)


def test_scheduled_limits_and_freezes_apply_in_a_replay() -> None:
    noon = START + 300

    def limits(moment: datetime) -> MemberLimits:
        return MemberLimits(0, 9, frozen="night" if moment.timestamp() >= noon else "")

    outcome = replay(moments(*[2] * 5, *[0] * 5), Fixed(4), limits, each=3)
    assert (outcome.points[19].members, outcome.points[-1].members) == (4, 0)


def test_an_empty_record_gives_an_empty_replay() -> None:
    assert (run([], Warm()).points, as_it_was([], each=3).points) == ([], [])


def test_a_gap_in_the_record_counts_as_ten_minutes_of_waiting() -> None:
    found = [*moments(9), DemandSample(START + 86400, 2, 6, 0, 0, 0)]
    assert as_it_was(found, each=3).waiting_hours == pytest.approx(3 * 10 / 60)


def test_a_long_record_of_a_large_pool_is_replayed_at_a_slower_pace(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    large = moments(*[30] * 10, members=1000)
    assert pace_of(large, 15.0) == 15.0
    assert pace_of([*large, DemandSample(START + 7 * 86400, 1000, 3000, 0, 0, 0)], 15.0) > 60.0
    assert len(run(waves(2), Warm()).thinned()) <= replays.POINTS
    monkeypatch.setattr(replays, "MOST_WORK", 200)  # 20 decisions over ten members
    slow = run(moments(*[3] * 20), Fixed(2))
    assert (slow.every, len(slow.points)) == (60.0, 20)


# Recorded for real --------------------------------------------------------------------------------

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("tables")]


@pytest.fixture
def pool(settings: Any) -> Pool:
    settings.BERTH_PROVIDERS = (
        "tests.pools.providers.fake_providers.CraneProvider",
        "pools.providers.static.provider.StaticProvider",
    )
    return make(low=1, high=8, slots=3, policy="utilisation")


def record(pool: Pool, days: float = 1) -> None:
    now = timezone.now().replace(second=0, microsecond=0)
    found = waves(days)
    shift = now - timedelta(minutes=len(found))
    Sample.objects.bulk_create(
        Sample(
            pool=pool,
            at=shift + timedelta(minutes=i),
            members=m.members,
            slots=m.slots,
            held=m.held,
            reserved=0,
            waiting=m.waiting,
        )
        for i, m in enumerate(found)
    )


def test_a_replay_compares_other_limits_and_changes_nothing(pool: Pool) -> None:
    record(pool)
    found = replay_pool(pool, days=2, changes={"members": {"max": 3}})
    assert (found.minutes, found.was.most) == (1440, 5)
    assert found.other is not None
    assert (
        found.now.most <= 8,
        found.other.most,
        found.other.waiting_hours > found.now.waiting_hours,
    ) == (True, 3, True)
    assert (Decision.objects.exclude(delta=0).count(), Member.objects.count()) == (0, 0), (
        "nothing is changed"
    )


def test_a_replay_command_reads_another_policy_from_a_file(pool: Pool, tmp_path: Path) -> None:
    record(pool)
    file = tmp_path / "warm.yaml"
    file.write_text("scaling: {policy: warm, max_idle: 2}\n")
    out = StringIO()
    call_command(
        "scale", "--replay", "lab", "--days", "1", "--with", str(file), "--json", stdout=out
    )
    told = json.loads(out.getvalue())
    assert set(told) == {"pool", "days", "minutes", "ready_after_s", "was", "now", "tried"}
    assert told["tried"]["member_hours"] < told["now"]["member_hours"], (
        "who is idle goes though something runs elsewhere"
    )
    out = StringIO()
    call_command("scale", "--replay", "lab", stdout=out)
    assert "Wait of 9 in 10" in out.getvalue()
    assert out.getvalue().splitlines()[1].split() == ["was", "now"]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("scaling: {policy: wrm}", "wrm is not a policy here"),
        ("members: {max: -1}", "members.max"),
        ("slots: 9", "A replay cannot change slots"),
        ("[1, 2", "This is not valid YAML"),
        ("7", "This is not a YAML mapping"),
    ],
    ids=["policy", "limits", "part", "yaml", "number"],
)
def test_a_faulty_replay_file_is_refused_with_the_fault(
    pool: Pool, tmp_path: Path, text: str, said: str
) -> None:
    file = tmp_path / "wrong.yaml"
    file.write_text(text)
    with pytest.raises(CommandError, match=said):
        call_command("scale", "--replay", "lab", "--with", str(file))


def test_a_replay_that_is_not_possible_says_why(pool: Pool, tmp_path: Path) -> None:
    with pytest.raises(CommandError, match="Nothing is recorded yet"):
        call_command("scale", "--replay", "lab")
    with pytest.raises(CommandError, match="can't be read"):
        call_command("scale", "--replay", "lab", "--with", str(tmp_path / "missing"))
    with pytest.raises(Invalid, match="99 days are not recorded"):
        replay_pool(pool, days=99)
    by_hand = create_pool({n: v for n, v in config("plain").items() if n != "scaling"})
    with pytest.raises(Conflict, match="has no scaling"):
        replay_pool(by_hand)
