"""The `approval` settings of a pool."""

from typing import Any

import pytest

from pools.config.approval_spec import ApprovalSpec
from pools.config.spec import parse_pool, read_pool
from pools.providers.base import option_readers

HOUR = 3600.0


def pool(**approval: Any) -> dict[str, Any]:
    return {"name": "tf", "slots": ["any", "plan"], "approval": approval}


def read(**approval: Any) -> ApprovalSpec:
    return parse_pool(pool(**approval), option_readers()).approval


def faults(**approval: Any) -> list[str]:
    return [fault.field for fault in read_pool(pool(**approval), option_readers())[1]]


def test_approval_defaults_are_read_and_not_stored() -> None:
    assert read() == ApprovalSpec(1, True, 24 * HOUR, 2 * HOUR, None)
    assert "approval" not in parse_pool(pool(), option_readers()).as_stored()


@pytest.mark.parametrize(
    ("said", "meant"),
    [
        ({"needed": 2}, ApprovalSpec(needed=2, own=False)),
        ({"needed": 2, "own": True}, ApprovalSpec(needed=2, own=True)),
        ({"own": False}, ApprovalSpec(own=False)),
        ({"expires": "1h"}, ApprovalSpec(expires=HOUR, notice=HOUR / 2)),
        ({"expires": "1h", "notice": "0s"}, ApprovalSpec(expires=HOUR, notice=0.0)),
        ({"hold": "always"}, ApprovalSpec()),
        ({"hold": "30m"}, ApprovalSpec(hold=1800.0)),
        ({"hold": "0s"}, ApprovalSpec(hold=0.0)),
    ],
)
def test_approval_settings_are_read_and_round_trip(
    said: dict[str, Any], meant: ApprovalSpec
) -> None:
    assert read(**said) == meant
    stored = parse_pool(pool(**said), option_readers()).as_config()
    assert parse_pool(stored, option_readers()).approval == meant


@pytest.mark.parametrize(
    ("said", "field"),
    [
        ({"needed": 0}, "needed"),
        ({"needed": 11}, "needed"),
        ({"own": "yes"}, "own"),
        ({"expires": "0s"}, "expires"),
        ({"expires": "31d"}, "expires"),
        ({"notice": "24h"}, "notice"),
        ({"hold": 5}, "hold"),
        ({"hold": "never"}, "hold"),
        ({"holds": "5m"}, "holds"),
    ],
)
def test_invalid_approval_setting_is_named_by_its_field(said: dict[str, Any], field: str) -> None:
    assert faults(**said) == [f"approval.{field}"]


def test_slot_is_held_until_the_hold_time_is_over() -> None:
    assert ApprovalSpec().holds(1e9)
    assert (
        ApprovalSpec(hold=60.0).holds(59.0),
        ApprovalSpec(hold=60.0).holds(60.0),
        ApprovalSpec(hold=0.0).holds(0.0),
    ) == (
        True,
        False,
        False,
    )
