"""The table of UDP flows, against a model without any order: a list of keys with times."""

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from pools.providers.forwarder.process.flow_table import FlowTable
from tests.random_steps import run_steps

MOST, IDLE = 3, 10.0
keys = st.integers(0, 5)


class FlowTableMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.table: FlowTable[int, str] = FlowTable(MOST, IDLE)
        self.model: dict[int, float] = {}
        self.now = 0.0

    @rule(seconds=st.floats(0, 12))
    def wait(self, seconds: float) -> None:
        self.now += seconds

    @rule(key=keys)
    def datagram(self, key: int) -> None:
        if self.table.get(key, self.now) is None:
            assert key not in self.model
            if self.table.is_full:
                return
            self.table.add(key, f"flow {key}", self.now)
        self.model[key] = self.now

    @rule(key=keys)
    def remove(self, key: int) -> None:
        assert self.table.remove(key) == (f"flow {key}" if key in self.model else None)
        self.model.pop(key, None)

    @rule()
    def expire(self) -> None:
        due = {key for key, used in self.model.items() if self.now - used >= IDLE}
        assert set(self.table.expire(self.now)) == {f"flow {key}" for key in due}
        for key in due:
            del self.model[key]

    @rule()
    def clear(self) -> None:
        assert set(self.table.clear()) == {f"flow {key}" for key in self.model}
        self.model.clear()

    @invariant()
    def has_as_many_flows(self) -> None:
        assert len(self.table) == len(self.model) <= MOST
        assert self.table.is_full is (len(self.model) == MOST)


@pytest.mark.parametrize("steps", [40])
def test_flow_table_agrees_with_a_plain_model(steps: int) -> None:
    run_steps(FlowTableMachine, short=60, steps=steps)
