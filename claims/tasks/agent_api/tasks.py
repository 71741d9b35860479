"""The calls of an agent about one task: a claim on its member, in the generation of its order."""

import hashlib
import json
import re
from functools import partial

from django.http import HttpResponse
from drf_spectacular.utils import OpenApiParameter

from claims.tasks.agent_api import schemas
from claims.tasks.agent_api.endpoint import TAG, AgentCall, AgentEndpoint
from claims.tasks.files.sealed_files import delete_file, read_file, save_file
from claims.tasks.logs.logs import add_log, log_rate_limit, read_pieces, size_of
from claims.tasks.plans.outlines import outline_plan
from claims.tasks.runs import agents_sql
from claims.tasks.runs.interrupt import record_interrupt
from claims.tasks.runs.results import record_result
from claims.tasks.runs.services import start_run
from claims.tasks.runs.work_order import (
    REPORT_START,
    TaskHold,
    describe_work,
    find_hold,
    most_json,
    refuse,
    saved_plan,
    spec_of,
    was_here,
)
from claims.tasks.states.services import store_state
from claims.tasks.task_result import parse_result
from pools.http.endpoint import describe
from pools.http.fast_view import JSON, answer
from project.kernel.errors import Conflict, NotFound, wrong_field
from slots.members.tokens import record_refusal

RAW = "application/octet-stream"
BINARY = {"type": "string", "format": "binary"}
DIGEST = re.compile(r"[0-9a-f]{64}")
MOST_STATE = 128_000_000  # bytes
DIGEST_HEADER = OpenApiParameter(
    "Berth-Digest",
    {"type": "string", "pattern": "^[0-9a-f]{64}$"},
    OpenApiParameter.HEADER,
    description="sha256 of the body. Berth rejects a body with another digest.",
)
LATE = (404, 409)
describe_task = partial(describe, problems=LATE, tag=TAG)
describe_upload = partial(describe_task, body=BINARY, media=RAW, headers=[DIGEST_HEADER])


class TaskDetail(AgentEndpoint):
    @describe_task("Read the work order", {200: schemas.WorkAnswer}, name="agent_task")
    def get(self, call: AgentCall, claim_id: int, generation: int) -> HttpResponse:
        """Commands, source, environment and limits; the secrets that the task names, null for
        missing secrets; the plan that an apply executes.
        """
        return answer(
            describe_work(call.agent, find_hold(call.agent, claim_id, generation)),
            Cache_Control="no-store",
        )


class TaskStarted(AgentEndpoint):
    @describe_task(
        "Report the start",
        {200: schemas.Nothing},
        body=schemas.STARTED.schema(),
        name="agent_task_started",
    )
    def post(self, call: AgentCall, claim_id: int, generation: int) -> HttpResponse:
        """Call this before executing anything. A run starts once: another start of the agent gets
        409.
        """
        boot = call.parse(schemas.STARTED).boot
        place = find_hold(call.agent, claim_id, generation).place
        start_run(
            claim_id=claim_id, generation=generation, member=call.member, boot=boot, place=place
        )
        return answer({})


class TaskInterrupted(AgentEndpoint):
    @describe_task(
        "Report an interrupt",
        {200: schemas.Nothing},
        body=schemas.INTERRUPTED.schema(),
        name="agent_task_interrupted",
    )
    def post(self, call: AgentCall, claim_id: int, generation: int) -> HttpResponse:
        """The program was interrupted and may finish its current operations. The page of the claim
        shows them. Accepted also for a generation that is over.
        """
        record_interrupt(
            claim_id=claim_id,
            generation=generation,
            member=call.member,
            interrupt=call.parse(schemas.INTERRUPTED),
        )
        return answer({})


class TaskLog(AgentEndpoint):
    @describe_task(
        "Append to the log", {200: schemas.LogNext}, body=schemas.LOG, name="agent_task_log"
    )
    def post(self, call: AgentCall, claim_id: int, generation: int) -> HttpResponse:
        """One chunk or several, each once and in order. Accepted also for a generation that is
        over.
        """
        agent = call.agent
        pieces = read_pieces(call.read_object())
        run = agents_sql.run_of(claim=claim_id, generation=generation)
        if run is None or run.member_id != agent.member_id:
            raise find_reason(call, claim_id, generation)
        log_rate_limit.count(agent.member_id, sum(size_of(piece) for piece in pieces))
        most = spec_of(agent).task.log
        return answer(
            {
                "next": add_log(
                    claim_id=claim_id,
                    generation=generation,
                    member_id=agent.member_id,
                    pieces=pieces,
                    most=most,
                )
            }
        )


class TaskPlan(AgentEndpoint):
    @describe_upload("Upload the saved plan", {200: schemas.PlanSize}, name="agent_put_plan")
    def put(self, call: AgentCall, claim_id: int, generation: int) -> HttpResponse:
        """Stored encrypted. Until the result arrives, another upload replaces the plan."""
        hold = find_planned(call, claim_id, generation)
        data = call.read_raw(spec_of(call.agent).task.plan, "The saved plan", (RAW,))
        digest = read_digest(call, claim_id, data)
        save_files(hold, {"plan": data}, {"plan_digest": digest, "plan_size": len(data)})
        return answer({"size": len(data)})

    @describe_task("Download the plan to apply", {(200, RAW): BINARY}, name="agent_get_plan")
    def get(self, call: AgentCall, claim_id: int, generation: int) -> HttpResponse:
        """The approved plan, for an apply on another member than the plan."""
        plan = saved_plan(find_hold(call.agent, claim_id, generation))
        if not plan.file:
            raise NotFound(
                "This plan has no stored file.", code="no_plan_file", way_out="Plan again."
            )
        return raw(read_file(plan.file))


class TaskPlanJson(AgentEndpoint):
    @describe_task(
        "Upload the plan as JSON",
        {200: schemas.PlanResources},
        body={"type": "object"},
        name="agent_put_plan_json",
    )
    def put(self, call: AgentCall, claim_id: int, generation: int) -> HttpResponse:
        """The output of `terraform show -json`, redacted by the agent. Approvers read it. Stored
        encrypted.
        """
        hold = find_planned(call, claim_id, generation)
        data = call.read_raw(most_json(spec_of(call.agent)), "The plan's JSON", (JSON,))
        found = outline_plan(data)
        save_files(
            hold,
            {"json": data, "outline": found.data},
            {"json_resources": found.resources, "json_counts": found.counts},
        )
        return answer({"resources": found.resources})


class TaskState(AgentEndpoint):
    @describe_upload("Upload a rescued state", {200: schemas.StateAnswer}, name="agent_put_state")
    def put(self, call: AgentCall, claim_id: int, generation: int) -> HttpResponse:
        """The Terraform state that the backend of an apply did not accept (errored.tfstate). Send
        it before the result or after a restart of the agent. Accepted also for a generation that is
        over, and stored encrypted. Another upload replaces the state.
        """
        run = agents_sql.run_of(claim=claim_id, generation=generation)
        if run is None or run.member_id != call.agent.member_id:
            raise find_reason(call, claim_id, generation)
        if run.step != "apply":
            text = f"Generation {generation} of claim {claim_id} is a plan, which changes no state."
            raise Conflict(text, code="not_applying", way_out="Keep the file and inspect it.")
        data = call.read_raw(MOST_STATE, "The state", (RAW,))
        digest = read_digest(call, claim_id, data)
        is_kept = store_state(
            claim_id=claim_id, generation=generation, member=call.member, data=data
        )
        return answer({"is_kept": is_kept, "digest": digest if is_kept else ""})


class TaskSource(AgentEndpoint):
    @describe_task("Download the source", {(200, RAW): BINARY}, name="agent_get_source")
    def get(self, call: AgentCall, claim_id: int, generation: int) -> HttpResponse:
        """A tar.gz, whose sha256 the work order names."""
        hold = find_hold(call.agent, claim_id, generation)
        if hold.row.source_id is None:
            raise NotFound(
                "This task has no archive.",
                code="no_source",
                way_out="Follow `source` of the work order.",
            )
        return raw(read_file(hold.row.source_file))


class TaskResultEndpoint(AgentEndpoint):
    @describe_task(
        "Report the result",
        {200: schemas.SettledAnswer},
        body=schemas.RESULT,
        name="agent_task_result",
    )
    def post(self, call: AgentCall, claim_id: int, generation: int) -> HttpResponse:
        """A repeated result gets the same answer. A late result changes nothing and is recorded as
        an event.
        """
        result = parse_result(call.read_object())
        if not was_here(call.agent, claim_id, generation):
            raise find_reason(call, claim_id, generation)
        settled = record_result(
            claim_id=claim_id, generation=generation, member=call.member, result=result
        )
        return answer({"state": settled.state, "outcome": settled.outcome, "keep": settled.keep})


def read_digest(call: AgentCall, claim_id: int, data: bytes) -> str:
    """The digest of the body; raises if the header names another digest."""
    digest = hashlib.sha256(data).hexdigest()
    expected = call.headers.get("Berth-Digest", "")
    if not DIGEST.fullmatch(expected):
        raise wrong_field(
            "Berth-Digest",
            "This is not a digest.",
            "Send the sha256 of the body, in lowercase.",
        )
    if expected != digest:
        record_refusal(
            "sends a body of another digest",
            pool_id=call.agent.pool_id,
            member_id=call.agent.member_id,
            claim_id=claim_id,
        )
        raise Conflict(
            "The body has another digest than the header names.",
            code="digest_differs",
            way_out="Send it again.",
        )
    return digest


def find_reason(call: AgentCall, claim_id: int, generation: int) -> Exception:
    """The error for a generation without a run: the member does not hold the claim, or has not
    started it.
    """
    try:
        find_hold(call.agent, claim_id, generation)
    except (Conflict, NotFound) as error:
        return error
    text = f"Generation {generation} of claim {claim_id} has not started."
    return Conflict(text, code="not_started", way_out=REPORT_START)


def find_planned(call: AgentCall, claim_id: int, generation: int) -> TaskHold:
    """Accepts the files of a plan while its plan step runs."""
    hold = find_hold(call.agent, claim_id, generation)
    if hold.row.step != "plan":
        text = f"Claim {claim_id} is at its {hold.row.step}; its plan is complete."
        raise Conflict(text, code="not_planning", way_out="Apply the plan, or report plan_again.")
    if not hold.row.is_started or hold.row.is_over:
        raise (
            find_reason(call, claim_id, generation)
            if not hold.row.is_started
            else refuse(call.agent, claim_id, generation)
        )
    return hold


def save_files(hold: TaskHold, files: dict[str, bytes], about: dict[str, object]) -> None:
    """Saves the files by kind, then records their names with the run, then deletes the files that
    they replace.
    """
    claim_id, generation = hold.row.id, hold.row.generation
    names = {
        kind: save_file(kind, f"{claim_id}-{generation}", data) for kind, data in files.items()
    }
    row = agents_sql.keep_files(
        claim=claim_id, generation=generation, files=json.dumps(names | about)
    )
    if row is None:  # the result has arrived since
        for name in names.values():
            delete_file(name)
        raise Conflict(
            f"Generation {generation} of claim {claim_id} is over.",
            code="stale_generation",
            way_out="Ask for orders again.",
        )
    before = json.loads(row.before)
    for kind in names:
        delete_file(before.get(kind))


def raw(data: bytes) -> HttpResponse:
    return HttpResponse(data, content_type=RAW, headers={"Cache-Control": "no-store"})
