"""Random steps on pools of ports over strict clouds, with failures, drift and workers that die."""

import pytest

from tests.claims.ports.model.aws_outside import AwsOutside
from tests.claims.ports.model.machine import PortPools
from tests.claims.ports.model.outside import Outside
from tests.claims.ports.model.tencent_outside import TencentOutside
from tests.random_steps import run_steps

OUTSIDES: dict[str, type[Outside]] = {"aws": AwsOutside, "tencent": TencentOutside}


@pytest.mark.usefixtures("committed_tables")
@pytest.mark.parametrize("kind", sorted(OUTSIDES))
def test_random_steps_leave_the_cloud_as_the_rows_say(kind: str) -> None:
    outside = OUTSIDES[kind]()
    with outside.serve():
        machine = type(f"{kind.title()}Pools", (PortPools,), {"outside": outside})
        run_steps(machine, short=3, steps=30)
