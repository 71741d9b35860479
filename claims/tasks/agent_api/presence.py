"""The presence of an agent: hello, orders, heartbeats, stopped slots and goodbye."""

from collections.abc import Sequence

from django.http import HttpResponse

from claims.allocation.api.claims import SINCE, read_wait
from claims.lifecycle import tasks_sql
from claims.tasks.agent_api import schemas
from claims.tasks.agent_api.endpoint import TAG, AgentCall, AgentEndpoint
from claims.tasks.runs import agents_sql
from claims.tasks.runs.orders import heartbeat_buffer, read_orders, wait_for_orders
from claims.tasks.runs.services import ReportedRun, confirm_stopped, lose_runs
from claims.tasks.runs.work_order import GRACE, heartbeat_interval, limits_of, spec_of
from claims.tasks.states.services import sync_rescued
from pools.config.parsing import Faults, read_mapping
from pools.http.endpoint import describe, in_query, read_text
from pools.http.fast_view import answer
from project.kernel.errors import Conflict
from project.kernel.version import __version__
from slots.members.liveness import record_heartbeat, take_offline
from slots.members.tokens import AgentIdentity, record_refusal

LONGEST_WAIT = 60.0
WAIT = {"type": "number", "minimum": 0, "maximum": LONGEST_WAIT}
ABOUT = ("version", "python", "platform", "host", "boot")


class AgentHello(AgentEndpoint):
    @describe(
        "Start an agent",
        {200: schemas.HelloAnswer},
        body=schemas.HELLO.schema(),
        problems=(409,),
        name="agent_hello",
        tag=TAG,
    )
    def post(self, call: AgentCall) -> HttpResponse:
        """The member becomes ready. Runs that the agent no longer knows are lost; the answer
        repeats its current orders.
        """
        agent, spec = call.agent, spec_of(call.agent)
        hello = call.parse(schemas.HELLO)
        refuse_second(call, hello, 2 * heartbeat_interval(spec))
        about = {name: getattr(hello, name) for name in ABOUT}
        if hello.pid:
            about["pid"] = hello.pid
        record_heartbeat(member_id=agent.member_id, incarnation=agent.incarnation, load=about)
        if hello.states is not None:  # before the slots of lost runs become free
            sync_rescued(member=call.member, boot=hello.boot, reported=hello.states)
        lose_runs(call.member, hello.boot, filter_open_runs(agent.member_id, hello.runs))
        orders = read_orders(agent.member_id)
        about_agent = {
            "member": agent.member, "member_id": agent.member_id, "pool": agent.pool,
            "incarnation": agent.incarnation,
            "beat_s": heartbeat_interval(spec), "wait_s": heartbeat_interval(spec),
            "grace_s": GRACE, "limits": limits_of(spec), "server": __version__,
            "draining": orders.is_leaving,
        }  # fmt: skip
        return answer(about_agent | orders.as_dict())


class AgentOrders(AgentEndpoint):
    @describe(
        "Read the orders of an agent",
        {200: schemas.AgentOrdersAnswer},
        query=[
            in_query("wait", "Answer when the orders change, or after so many seconds.", WAIT),
            in_query(
                "have",
                "The version that the agent has. Berth answers at once if the version is old.",
                {"type": "string", "maxLength": 40},
            ),
        ],
        problems=(409,),
        name="agent_orders",
        tag=TAG,
    )
    def get(self, call: AgentCall) -> HttpResponse:
        """The tasks that the agent runs or ends, and the work directories that it keeps. Each call
        counts as a heartbeat.
        """
        have = read_text(call, "have", 40)
        is_first = SINCE not in getattr(call.request, "scope", {})
        left = read_wait(call, LONGEST_WAIT)
        if is_first:
            record_presence(call)
        orders = read_orders(call.agent.member_id)
        response = answer(orders.as_dict())
        if left > 0 and have == orders.version:
            # See project.kernel.http.asgi.
            response.again = lambda: wait_for_orders(call.agent.member_id, have, left)  # type: ignore[attr-defined]
        return response


class AgentHeartbeat(AgentEndpoint):
    @describe(
        "Send a heartbeat",
        {200: schemas.Nothing},
        body=schemas.HEARTBEAT,
        problems=(409,),
        name="agent_beat",
        tag=TAG,
    )
    def post(self, call: AgentCall) -> HttpResponse:
        """`load` is shown on the page of the member: running tasks, free disk, versions."""
        faults = Faults()
        given = read_mapping(call.read(), "", ("load",), faults)
        load = {} if given.get("load") is None else given["load"]
        if not isinstance(load, dict):
            faults.add("load", "This is not an object.", "Send names with values, or leave it out.")
        faults.raise_if_any()
        record_load(call.agent, load)
        return answer({})


class AgentStopped(AgentEndpoint):
    @describe(
        "Report stopped slots",
        {200: schemas.Nothing},
        body=schemas.STOPPED.schema(),
        problems=(409,),
        name="agent_stopped",
        tag=TAG,
    )
    def post(self, call: AgentCall) -> HttpResponse:
        """Frees draining slots whose processes have ended. A slot of another member rejects the
        whole call.
        """
        agent = call.agent
        pairs = [(each.slot, each.generation) for each in call.parse(schemas.STOPPED).slots]
        own = {
            row.id
            for row in tasks_sql.slots_on_member(
                slots=[slot for slot, _ in pairs], member=agent.member_id
            )
        }
        if foreign := sorted({slot for slot, _ in pairs} - own):
            record_refusal(
                "names slots that are not its own",
                pool_id=agent.pool_id,
                member_id=agent.member_id,
                slots=foreign[:20],
            )
            raise Conflict(
                f"Slot {foreign[0]} is not on this member.",
                code="not_yours",
                way_out="Send only slots that `stop` lists.",
            )
        confirm_stopped(call.member, pairs)
        return answer({})


class AgentGoodbye(AgentEndpoint):
    @describe(
        "End an agent",
        {200: schemas.Nothing},
        body=schemas.EMPTY,
        name="agent_goodbye",
        tag=TAG,
    )
    def post(self, call: AgentCall) -> HttpResponse:
        """The agent runs no tasks and accepts no new ones. Its member is offline at once and keeps
        its claims.
        """
        faults = Faults()
        read_mapping(call.read(), "", (), faults)
        faults.raise_if_any()
        liveness = spec_of(call.agent).liveness
        take_offline(
            member_id=call.agent.member_id,
            reason="its agent has ended",
            next_look=None if liveness is None else liveness.lost,
        )
        return answer({})


def record_load(agent: AgentIdentity, load: dict[str, object]) -> None:
    """Records a heartbeat with its load, and keeps the boot and host that `hello` sent."""
    known = agents_sql.present(member=agent.member_id, incarnation=agent.incarnation)
    if known is not None and known.boot:
        load = load | {"boot": known.boot, "host": known.host}
    record_heartbeat(member_id=agent.member_id, incarnation=agent.incarnation, load=load)


def refuse_second(call: AgentCall, hello: schemas.HelloBody, within: float) -> None:
    """Rejects an agent on another machine with the same token while the first agent is at work. As
    a restart, the second agent would end the runs of the first one and free their slots. An agent
    on the same machine is a restart: its state folder lists its runs.
    """
    agent = call.agent
    known = agents_sql.present(member=agent.member_id, incarnation=agent.incarnation)
    if known is None or agent.state != "ready" or not known.is_busy or known.silent >= within:
        return
    if (
        known.boot
        and known.boot != hello.boot
        and known.host
        and hello.host
        and known.host != hello.host
    ):
        record_refusal(
            "another agent of its member is at work",
            pool_id=agent.pool_id,
            member_id=agent.member_id,
            host=hello.host,
        )
        raise Conflict(
            f"Another agent of {agent.member}, on {known.host}, is at work.",
            code="another_agent",
            way_out=f"End the other agent. This agent is accepted after the goodbye of the other "
            f"agent, or after its silence of {within:g} s.",
        )


def record_presence(call: AgentCall) -> None:
    """Heartbeats of ready members are written together. An agent that returns makes its member
    ready at once.
    """
    agent = call.agent
    if agent.state == "ready":
        heartbeat_buffer.record(agent.member_id, agent.incarnation)
    elif agent.state in ("creating", "offline"):
        record_heartbeat(member_id=agent.member_id, incarnation=agent.incarnation)


def filter_open_runs(member_id: int, runs: Sequence[ReportedRun]) -> list[ReportedRun]:
    """The reported runs that have not ended. Runs of claims that have ended since, or that the
    member never held, are no reason to reject the agent.
    """
    known = (
        {(row.claim_id, row.generation) for row in agents_sql.open_runs(member=member_id)}
        if runs
        else set()
    )
    return [run for run in runs if (run.claim, run.generation) in known]
