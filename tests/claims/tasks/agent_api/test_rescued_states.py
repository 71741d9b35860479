"""A rescued Terraform state over HTTP: uploaded by its agent, sealed, downloaded by approvers."""

import hashlib
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from django.core.management import call_command

import claims.checks
from claims.allocation.claim_view import ClaimView
from claims.models import RescuedState, Run
from claims.tasks.runs.results import record_result
from claims.tasks.states.services import delete_settled_states
from pools.models import Member, Pool
from project.kernel.doctor.registry import examine
from project.kernel.models import Event
from slots.models import Slot, UnsavedState
from tests.api.conftest import Caller, Callers
from tests.claims.tasks.agent_api.conftest import Agent, make_agents, make_claim
from tests.claims.tasks.approvals.helpers import result
from tests.dashboard.plain_browser import browser_as

pytestmark = pytest.mark.django_db
assert claims.checks  # registers them
STATE = b'{"serial": 7, "password": "hunter2"}'


@pytest.fixture
def claim(pool: Pool) -> ClaimView:
    """A claim whose apply runs on the agent."""
    made = make_claim(pool, "plan_and_apply")
    Run.objects.filter(claim_id=made.id).update(step="apply")
    return made


def path_of(claim: ClaimView) -> str:
    return f"tasks/{claim.id}/{claim.generation}/state/"


def upload(agent: Agent, claim: ClaimView, data: bytes = STATE, digest: str = "") -> Any:
    told = digest or hashlib.sha256(data).hexdigest()
    return agent(
        "PUT", path_of(claim), data, Content_Type="application/octet-stream", Berth_Digest=told
    )


def on_agent(claim: ClaimView, agent: Agent) -> None:
    hello = {
        "boot": "b1",
        "states": [{"claim": claim.id, "generation": claim.generation, "size": len(STATE)}],
    }
    assert agent.post("hello/", hello).status == 200


def download(call: Caller, claim: ClaimView) -> Any:
    return call("GET", f"claims/{claim.id}/runs/{claim.generation}/state/")


def test_an_uploaded_state_is_stored_sealed(agent: Agent, claim: ClaimView, files: Path) -> None:
    answer = upload(agent, claim)
    assert (answer.status, answer.body) == (
        200,
        {"is_kept": True, "digest": hashlib.sha256(STATE).hexdigest()},
    )
    row = RescuedState.objects.get()
    assert (row.claim_id, row.size, row.member_id, row.pool_id) == (
        claim.id,
        len(STATE),
        agent.member.pk,
        claim.pool_id,
    )
    assert b"hunter2" not in (files / str(row.file)).read_bytes()
    assert not UnsavedState.objects.exists()


def test_a_state_with_a_wrong_digest_is_not_stored(agent: Agent, claim: ClaimView) -> None:
    assert upload(agent, claim, digest="0" * 64).body["code"] == "digest_differs"
    assert not RescuedState.objects.exists()


def test_a_state_is_accepted_only_from_the_agent_of_an_apply(
    pool: Pool, agent: Agent, claim: ClaimView
) -> None:
    Run.objects.filter(claim_id=claim.id).update(step="plan")
    assert upload(agent, claim).body["code"] == "not_applying"
    Run.objects.filter(claim_id=claim.id).update(step="apply", member_id=agent.member.pk + 1)
    assert upload(agent, claim).status in (404, 409)
    assert not RescuedState.objects.exists()


def test_hello_records_the_unsaved_states_of_its_agent(agent: Agent, claim: ClaimView) -> None:
    on_agent(claim, agent)
    assert UnsavedState.objects.get().member_id == agent.member.pk
    assert agent.post("hello/", {"boot": "b1", "states": [{"claim": "x"}]}).status == 400
    assert agent.post("hello/", {"boot": "b1"}).status == 200, (
        "an older agent does not speak of states"
    )
    assert UnsavedState.objects.exists()


@pytest.mark.parametrize(
    ("role", "status"), [("approver", 200), ("operator", 403), ("claimant", 403), ("viewer", 403)]
)
def test_only_approvers_download_a_state_by_api(
    role: str, status: int, agent: Agent, claim: ClaimView, caller: Callers
) -> None:
    upload(agent, claim)
    pool = Pool.objects.get(pk=claim.pool_id)
    answer = download(caller(role, pool), claim)
    assert answer.status == status
    assert Event.objects.filter(verb="state_download").count() == (status == 200)
    if status == 200:
        assert answer.body == STATE
        assert (
            answer.headers["Content-Disposition"]
            == f'attachment; filename="claim-{claim.id}-{claim.generation}.tfstate"'
        )
        assert answer.headers["Content-Type"] == "application/octet-stream"
        assert answer.headers["Cache-Control"] == "no-store"
        assert answer.headers["X-Content-Type-Options"] == "nosniff"


def test_an_approver_of_another_pool_gets_no_state(
    agent: Agent, claim: ClaimView, caller: Callers
) -> None:
    upload(agent, claim)
    assert download(caller("approver", make_agents("elsewhere")), claim).status in (403, 404)


def test_the_claim_page_offers_the_state_to_approvers_only(agent: Agent, claim: ClaimView) -> None:
    upload(agent, claim)
    pool = Pool.objects.get(pk=claim.pool_id)
    href = f"/claims/{claim.id}/state/{claim.generation}/"
    approver = browser_as("approver", pool)
    assert f'href="{href}" download' in approver.get(f"/claims/{claim.id}/").content.decode()
    shown = browser_as("viewer", pool).get(f"/claims/{claim.id}/").content.decode()
    assert f'href="{href}"' not in shown and "Berth rescued the Terraform state" in shown
    answer = approver.get(href)
    assert (answer.content, answer["Content-Disposition"].split(";")[0]) == (STATE, "attachment")
    assert browser_as("operator", pool).get(href).status_code == 403


def test_a_state_that_only_its_agent_has_is_shown_and_can_be_discarded(
    agent: Agent, claim: ClaimView
) -> None:
    on_agent(claim, agent)
    pool = Pool.objects.get(pk=claim.pool_id)
    operator = browser_as("operator", pool)
    shown = operator.get(f"/claims/{claim.id}/").content.decode()
    assert f"Only the agent of {agent.member.name} has the Terraform state" in shown
    asked = browser_as("admin", pool).get(f"/members/{agent.member.pk}/remove/").content.decode()
    assert f"only this agent has the state of claim {claim.id}" in asked
    href = f"/claims/{claim.id}/state/{claim.generation}/discard/"
    question = operator.get(href)
    assert "only the agent has it" in question.content.decode()
    seen = question.content.decode().partition('name="seen" value="')[2].partition('"')[0]
    assert operator.post(href, {"seen": seen, "reason": "not needed"}).status_code == 302
    assert not UnsavedState.objects.exists()
    assert upload(agent, claim).body == {"is_kept": False, "digest": ""}


def test_runs_and_workspaces_list_rescued_states(
    agent: Agent, claim: ClaimView, caller: Callers
) -> None:
    upload(agent, claim)
    admin = caller("admin")
    (run,) = admin("GET", f"claims/{claim.id}/runs/").body["results"]
    assert (run["state"]["status"], run["state"]["size"]) == ("kept", len(STATE))
    assert admin("GET", f"workspaces/{claim.workspace}/").body["rescued_states"] == [run["state"]]
    (listed,) = [
        w for w in admin("GET", "workspaces/").body["results"] if w["name"] == claim.workspace
    ]
    assert listed["rescued_states"] == [run["state"]]
    gone = admin(
        "POST", f"claims/{claim.id}/runs/{claim.generation}/state/discard/", {"reason": "pushed"}
    )
    assert (gone.status, gone.body["status"]) == (200, "settled")
    assert admin("GET", f"workspaces/{claim.workspace}/").body["rescued_states"] == []


def test_the_doctor_lists_states_that_wait_for_a_person(agent: Agent, claim: ClaimView) -> None:
    def found() -> list[str]:
        return [finding.detail for report in examine(["I31"]) for finding in report.findings]

    on_agent(claim, agent)
    assert found() == [
        f"only the agent of {agent.member.name} has the state of claim {claim.id}; the member "
        "is not removed"
    ]
    upload(agent, claim)
    assert found() == [
        f"the state of claim {claim.id} is rescued and kept sealed, {len(STATE)} bytes"
    ]
    RescuedState.objects.update(file="", kept_at=None)
    assert found() == [
        f"the state of claim {claim.id} was only on the agent of {agent.member.name} and is lost"
    ]


def test_a_late_result_still_records_the_unsaved_state(agent: Agent, claim: ClaimView) -> None:
    said = result("failed", code="state_not_saved", rescued_bytes=9)
    Run.objects.filter(claim_id=claim.id).update(ended_at=claim.bound_at, outcome="lost")
    answer = agent.post(
        f"tasks/{claim.id}/{claim.generation}/result/",
        {"outcome": said.outcome, "code": said.code, "state": {"size": 9}},
    )
    assert answer.status == 409
    assert UnsavedState.objects.get().claim_id == claim.id


def test_forgetting_a_member_names_the_lost_state(
    agent: Agent, claim: ClaimView, capsys: Any
) -> None:
    record_result(
        claim_id=claim.id,
        generation=claim.generation,
        member=agent.member,
        result=result("cancelled"),
    )
    Slot.objects.update(is_open=False)
    Member.objects.filter(pk=agent.member.pk).update(state="deleting", is_leaving=True)
    UnsavedState.objects.create(
        member_id=agent.member.pk, claim_id=claim.id, generation=claim.generation
    )
    call_command("forget_member", f"tf/{agent.member.name}", "--reason", "its cluster is gone")
    assert (
        f"The only copy of the Terraform state of claim {claim.id} is lost."
        in capsys.readouterr().out
    )
    assert not UnsavedState.objects.exists()


def test_settled_states_are_deleted_after_their_retention(agent: Agent, claim: ClaimView) -> None:
    upload(agent, claim)
    assert delete_settled_states(0, 10) == 0
    RescuedState.objects.update(settled_at=claim.created_at - timedelta(days=1))
    assert delete_settled_states(0, 10) == 1
