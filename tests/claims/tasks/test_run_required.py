"""In a pool with agents a task must say what to run, by API, service and bulk create."""

from typing import Any

import pytest

from claims.allocation.bulk import create_claims
from claims.allocation.create import create_claim
from claims.models import Claim, Task
from pools.models import Member, Pool
from project.kernel.errors import Invalid
from slots.models import Slot
from tests.claims.helpers import make_pool, wish
from tests.claims.tasks.agent_api.conftest import make_agents

pytestmark = pytest.mark.usefixtures("tables")

TASK: dict[str, Any] = {"task": "plan", "workspace": "net"}
RUN = {"executor": "command", "commands": {"plan": "make plan"}}


def check_refused(error: Invalid) -> None:
    assert [fault.field for fault in error.fields] == ["run"]
    assert error.fields[0].way_out
    assert not Claim.objects.exists()


def test_a_task_without_a_run_is_refused_by_the_service() -> None:
    make_agents("tf")
    with pytest.raises(Invalid) as caught:
        create_claim(wish("tf", **TASK))
    check_refused(caught.value)


def test_a_task_without_a_run_in_a_named_slot_is_refused() -> None:
    pool = make_agents("tf")
    slot = Slot.objects.filter(pool_id=pool.pk, lane="plan").first()
    assert slot is not None
    with pytest.raises(Invalid) as caught:
        create_claim(wish("tf", slot=slot.pk, **TASK))
    check_refused(caught.value)


def test_a_bulk_create_makes_only_the_tasks_with_a_run() -> None:
    make_agents("tf")
    first, second, third = create_claims(
        [wish("tf", **TASK), wish("tf", **TASK), wish("tf", **TASK, run=RUN)]
    )
    assert (type(first), type(second)) == (Invalid, Invalid)
    assert not isinstance(third, Exception) and third.state == "bound"
    assert (Claim.objects.count(), Task.objects.count()) == (1, 1)


def test_a_pool_without_agents_accepts_a_task_without_a_run() -> None:
    make_pool("lab", slots=["any", "plan"])
    assert create_claim(wish("lab", **TASK)).state == "bound"
    (many,) = create_claims([wish("lab", **TASK)])
    assert not isinstance(many, Exception)
    assert many.state == "bound"


def test_a_reused_pool_name_is_looked_up_again() -> None:
    make_agents("lab")
    Slot.objects.update(is_open=False)
    with pytest.raises(Invalid):
        create_claim(wish("lab", **TASK))
    Member.objects.update(state="deleting")
    Member.objects.update(state="gone")
    Pool.objects.update(state="deleting")
    Pool.objects.update(state="gone")
    make_pool("lab", slots=["any", "plan"])
    assert create_claim(wish("lab", **TASK)).state == "bound"
