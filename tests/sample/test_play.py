"""The scenario of the sample gives each team its requests, deterministically."""

import json
from random import Random

import pytest
import yaml

from claims.ports.port_list import read_ports
from pools.config.layout import kinds, slots_of
from pools.config.parsing import Faults
from pools.config.spec import MemberSpec, parse_pool
from pools.providers.base import option_readers
from project.sample.scenario import (
    BY_POOL,
    HARBOUR,
    RUNNERS,
    TASK_PERIOD,
    TASKS,
    TEAMS,
    VISITORS,
    WORKSPACES,
    SampleTeam,
    count_opening_claims,
    count_tasks_at,
    demand_at,
    key_of,
    pause_before_next,
    size_of,
    task_of,
    work_of,
)
from project.sample.services import POOLS


def configs() -> dict[str, dict]:
    return {config["name"]: config for config in yaml.safe_load_all(POOLS.read_text())}


def test_a_claim_key_always_gives_the_same_work() -> None:
    for team in TEAMS:
        assert work_of(key_of(team.pool, "a1")) == work_of(key_of(team.pool, "a1"))


@pytest.mark.parametrize("key", ["", "env-test", "env-test.", "other.a1"])
def test_unknown_claim_keys_give_no_work(key: str) -> None:
    assert work_of(key) is None


@pytest.mark.parametrize("team", TEAMS, ids=lambda team: team.pool)
def test_the_plan_of_a_team_matches_the_config_of_its_pool(team: SampleTeam) -> None:
    spec = parse_pool(configs()[team.pool], option_readers())
    # Scaling creates members that declare nothing for themselves.
    members = spec.declared or [MemberSpec("", spec.member_labels)] * spec.max_members
    assert bool(spec.declared) == (spec.scaling is None)
    assert team.capacity == sum(len(slots_of(spec.layout, member.own)) for member in members)
    for request in team.requests:
        if "ports" in request:
            assert read_ports(request["ports"], "ports", (team.pool,), Faults())
        else:
            assert request.get("kind", kinds(spec.layout)[0]) in kinds(spec.layout)
        wanted = request.get("selector", {})
        assert any(wanted.items() <= dict(member.labels).items() for member in members), wanted
    assert spec.lease.heartbeat is None or team.beat < spec.lease.heartbeat / 2
    assert spec.lease.hold is None or team.hold[1] < spec.lease.hold
    assert not team.urgent_share or spec.top_priority


def test_demand_exceeds_capacity_somewhere_and_falls_below_half_everywhere() -> None:
    assert any(max(demand_at(team, t) for t in range(0, 1000, 5)) > team.capacity for team in TEAMS)
    assert all(
        min(demand_at(team, t) for t in range(0, 1000, 5)) < team.capacity / 2 for team in TEAMS
    )


@pytest.mark.parametrize("team", TEAMS, ids=lambda team: team.pool)
def test_arrival_rate_times_hold_time_matches_the_demand(team: SampleTeam) -> None:
    draw, now, held = Random(1), 0.0, 0.0
    while now < 200 * team.period:
        now += pause_before_next(team, now, draw.random())
        work = work_of(key_of(team.pool, str(now)))
        assert work is not None
        held += work.hold * size_of(work.request)
    wanted = sum(demand_at(team, t) for t in range(int(team.period))) / team.period
    assert held / now == pytest.approx(wanted, rel=0.15)


def test_all_crews_together_send_under_four_requests_a_second() -> None:
    calls = sum(
        demand_at(team, 0) / team.mean_hold / team.mean_size * 3
        + (demand_at(team, 0) / team.beat if team.beat else 0)
        for team in TEAMS
    )
    assert calls < 4, "requests a second"
    assert {*BY_POOL, HARBOUR} == set(configs())


def test_demand_for_runners_needs_from_one_member_to_more_than_the_maximum() -> None:
    team, config = BY_POOL[RUNNERS], configs()[RUNNERS]
    each = team.capacity / config["members"]["max"]
    wanted = [demand_at(team, t) / each for t in range(int(team.period))]
    assert min(wanted) < config["members"]["min"] < config["members"]["max"] < max(wanted)


def test_demand_for_runners_first_falls_below_one_member_within_two_minutes() -> None:
    team, config = BY_POOL[RUNNERS], configs()[RUNNERS]
    wanted = [demand_at(team, t) for t in range(120)]
    assert wanted[0] > wanted[30] > min(wanted)
    assert min(wanted) < team.capacity / config["members"]["max"]


def test_the_number_of_live_tasks_rises_and_falls_above_the_visitors() -> None:
    counts = {count_tasks_at(t) for t in range(int(TASK_PERIOD))}
    assert (min(counts), max(counts)) == TASKS and min(counts) > VISITORS


def test_a_task_key_always_gives_the_same_task() -> None:
    for n in range(50):
        key = key_of(HARBOUR, str(n))
        work = task_of(key)
        assert work is not None and work == task_of(key)
        assert work.workspace in WORKSPACES
        assert json.loads(work.wanted) == work.harbour
        assert work.is_approved or work.comment
    assert task_of(key_of("env-test", "1")) is None and work_of(key_of(HARBOUR, "1")) is None


def test_the_planner_draws_every_kind_of_task_and_both_decisions() -> None:
    works = [task_of(key_of(HARBOUR, str(n))) for n in range(200)]
    assert {work.task for work in works if work} == {"plan", "plan_and_apply", "drift_check"}
    assert {work.is_approved for work in works if work} == {True, False}


def test_the_opening_claims_of_a_team_exceed_its_capacity() -> None:
    assert any(count_opening_claims(team) * team.mean_size > team.capacity for team in TEAMS)
