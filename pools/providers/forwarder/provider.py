"""Load balancers as forwarder processes on this machine. The provider starts them, sets their
listeners, finds them again after a restart of Berth, and ends them.

Each member has a folder under BERTH_HOME/forwarders and a process that outlives Berth's worker
(project.kernel.embedded.detached). Requests go through a socket in the folder and name the
incarnation of the member and the generations of its slots, so that a delayed worker cannot undo
what a later one has set.
"""

import logging
import os
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, ClassVar

from django.conf import settings

from pools.config.fields import Fields
from pools.config.layout import Layout
from pools.config.parsing import Faults
from pools.providers.base import (
    MemberReport,
    MemberSnapshot,
    Observation,
    PoolSnapshot,
    Provider,
    Seen,
    SeenSlot,
)
from pools.providers.display import OptionForm, ProviderTexts
from pools.providers.forwarder import addresses, options
from pools.providers.forwarder.busy_ports import list_busy
from pools.providers.forwarder.control_client import NotAnswering, ask
from pools.providers.forwarder.forwarder_folder import (
    ASKED,
    LOG,
    end_process,
    find_process,
    folder_of,
    forwarders_home,
    list_starts,
    make_folder,
    pause_before_start,
    record_answer,
    remove,
    start_process,
    why_ended,
)
from pools.providers.forwarder.member_plan import (
    Answer,
    add_foreign,
    describe_slots,
    list_clean,
    plan_member,
)
from pools.providers.forwarder.process.plan import ForwardOptions, Place, write_plan
from pools.providers.forwarder.process.plan_file import NAME as PLAN
from pools.providers.member_folders import list_strays, start_lock, write_pool
from project.kernel.embedded import detached
from project.kernel.embedded.detached import Process
from project.kernel.errors import FieldError
from project.kernel.outbox.operations import ConflictError, ProviderError

logger = logging.getLogger(__name__)

START = 5.0  # seconds that a call waits for a forwarder that it started
LOOK = 2.0  # seconds for an answer in a look
TICK = 0.05
HERE = "forwarders of this machine"


@contextmanager
def _machine_errors() -> Iterator[None]:
    """A full disk or a lack of file descriptors says nothing about a forwarder: no member is
    reported down for it, and the call is repeated.
    """
    try:
        yield
    except OSError as error:
        raise ProviderError(
            f"Berth cannot manage the forwarders of this machine: {error}. Berth tries again."
        ) from error


class ForwarderProvider(Provider):
    kind: ClassVar[str] = "forwarder"
    queue: ClassVar[str] = "forwarder"
    is_owner: ClassVar[bool] = True
    listens_here: ClassVar[bool] = True
    look_every: ClassVar[float] = 5.0
    option_fields: ClassVar[Fields] = options.FIELDS
    live_options: ClassVar[tuple[str, ...]] = tuple(options.FIELDS)
    free_options: ClassVar[tuple[str, ...]] = options.FREE
    unserved_kinds: ClassVar[Mapping[str, str]] = {
        "tcp_ssl": "a forwarder ends no TLS, so the target must end it",
        "quic": "a forwarder has no certificates; UDP carries QUIC to a target that ends it",
    }
    texts: ClassVar[ProviderTexts] = options.TEXTS
    form: ClassVar[OptionForm | None] = options.FORM

    @classmethod
    def shares_address(cls) -> bool:
        return addresses.is_shared()

    @classmethod
    def place_of(cls, options: Mapping[str, Any]) -> str:
        """A forwarder that does not answer delays no other pool."""
        return HERE

    @classmethod
    def check_layout(cls, layout: Layout, faults: Faults) -> None:
        options.check_layout(layout, faults)

    def check(self, pool: PoolSnapshot) -> list[FieldError]:
        return check_machine()

    @_machine_errors()
    def sync(self, pool: PoolSnapshot, member: MemberSnapshot) -> MemberReport:
        folder = folder_of(pool, member)
        if member.state == "deleting":
            return _delete(folder, pool, member)
        process = _run(folder, pool, member)
        if process is None:
            return _report_down(folder, member)
        return _apply_when_up(folder, pool, member, process)

    @_machine_errors()
    def look(self, pool: PoolSnapshot) -> Observation:
        """All members: a process that has ended is started again. A `deleting` member is gone
        once its folder is removed.
        """
        places = [(folder_of(pool, member), member) for member in pool.members]
        return Observation(
            tuple(
                _observe(folder, pool, member)
                for folder, member in places
                if member.state != "deleting" or folder.exists()
            ),
            strays={
                member_id: f"forwarder {folder.name}"
                for member_id, folder in list_strays(forwarders_home(), pool).items()
            },
        )

    @classmethod
    def name_adopted(cls, pool: str, stray: str, member_id: int) -> str | None:
        """The folder has the name of its member."""
        start, end = f"forwarder {pool}-", f".{member_id}"
        if not stray.startswith(start) or not stray.endswith(end):
            return None
        return stray.removeprefix(start).removesuffix(end) or None

    @_machine_errors()
    def remove_strays(self, pool: PoolSnapshot, member_ids: Collection[int]) -> None:
        for member_id, folder in list_strays(forwarders_home(), pool).items():
            if member_id in member_ids:
                remove(folder)


def check_machine() -> list[FieldError]:
    """Why no forwarder can run here; empty: forwarders can run."""
    try:
        addresses.read_networks()
    except ProviderError as error:
        return [FieldError("provider.kind", str(error), "Correct the setting, then retry.")]
    if os.environ.get("KUBERNETES_SERVICE_HOST") and not settings.BERTH_FORWARDER_BIND:
        return [
            FieldError(
                "provider.kind",
                "Berth runs in a cluster, where a worker has a machine and a state folder of its "
                "own: only its container could reach the ports.",
                "Use another provider. If all of Berth runs in one container, name its addresses "
                "in BERTH_FORWARDER_BIND.",
            )
        ]
    if not _is_writable(Path(settings.BERTH_HOME)):
        return [
            FieldError(
                "provider.kind",
                f"Berth has no state folder of its own: it cannot write to {settings.BERTH_HOME}.",
                "Set BERTH_HOME to a folder that the worker can write to.",
            )
        ]
    return []


def _is_writable(folder: Path) -> bool:
    """Whether this user can write to the folder, or create it."""
    there = next(each for each in (folder, *folder.parents) if each.exists())
    return os.access(there, os.W_OK | os.X_OK)


def _run(folder: Path, pool: PoolSnapshot, member: MemberSnapshot) -> Process | None:
    """The running forwarder of this incarnation, started if none runs. None: it ended soon after
    its last starts, and the next start waits.
    """
    process = find_process(folder, member.incarnation)
    if _is_current(process, member):
        return process
    make_folder(folder)
    with start_lock(folder):
        write_pool(folder, pool)
        addresses.assign(forwarders_home(), folder)
        process = find_process(folder, member.incarnation)
        if _is_current(process, member):
            return process
        if process is not None and process.mark != member.incarnation:
            _refuse_older(folder, process, member)
            end_process(folder, process)
        elif pause_before_start(folder):
            return None
        _mark_stop(folder, pool)
        return start_process(folder, member.incarnation)


def _mark_stop(folder: Path, pool: PoolSnapshot) -> None:
    detached.mark_stop(folder, with_berth=options.stops_with_berth(pool.options))


def _is_current(process: Process | None, member: MemberSnapshot) -> bool:
    return process is not None and process.mark == member.incarnation and detached.is_alive(process)


def _refuse_older(folder: Path, process: Process, member: MemberSnapshot) -> None:
    """A worker that was delayed must not end a process that a later worker has started. A process
    that was started long ago belongs to a database that was restored since.
    """
    if process.mark > member.incarnation and list_starts(folder):
        raise ConflictError(
            f"Incarnation {process.mark} of {member.name} was started a short time ago; the "
            f"request is for {member.incarnation}."
        )


def _apply_when_up(
    folder: Path, pool: PoolSnapshot, member: MemberSnapshot, process: Process
) -> MemberReport:
    """Set the listeners, as soon as a process that was just started answers."""
    until = time.monotonic() + START
    while detached.is_alive(process):
        try:
            return _apply(folder, pool, member)
        except NotAnswering:
            if member.state == "creating" and time.monotonic() > until:
                why = "its forwarder does not answer yet"
                return MemberReport(external_id=folder.name, why=why, again=1.0)
            if time.monotonic() > until:
                raise
        time.sleep(TICK)
    return _report_down(folder, member)


def _delete(folder: Path, pool: PoolSnapshot, member: MemberSnapshot) -> MemberReport:
    """Connections have the time of `drain` to end, while the process answers."""
    process = find_process(folder, member.incarnation)
    if process is not None and process.mark == member.incarnation and detached.is_alive(process):
        with suppress(ProviderError):
            answer = _send(folder, pool, member)
            if answer["leaving"]:
                left = sum(each["connections"] for each in answer["leaving"])
                return MemberReport(why=f"{left} connections are ending", again=1.0)
    remove(folder)
    return MemberReport(is_gone=True)


def _apply(folder: Path, pool: PoolSnapshot, member: MemberSnapshot) -> MemberReport:
    _mark_stop(folder, pool)
    before = _list_busy_now(folder)
    answer = _send(folder, pool, member)
    record_answer(folder, answered=True)
    clean = list_clean(answer, member)
    draining = {slot.id for slot in member.slots if slot.state == "draining"}
    return MemberReport(
        clean=clean,
        is_ready=True,
        external_id=folder.name,
        addresses=tuple(answer["bind"]),
        slots=_see_slots(folder, pool, member, answer, before),
        again=1.0 if draining - clean else None,
    )


def _send(folder: Path, pool: PoolSnapshot, member: MemberSnapshot) -> Answer:
    bind = addresses.assign(forwarders_home(), folder)
    plan = write_plan(plan_member(pool, member, bind))
    return ask(folder, {"do": "apply", "plan": plan})


def _observe(folder: Path, pool: PoolSnapshot, member: MemberSnapshot) -> Seen:
    seen = Seen(member.id, is_ready=False, external_id=folder.name)
    process = find_process(folder, member.incarnation)
    try:
        if _is_current(process, member):
            return _observe_running(folder, pool, member, seen)
        if member.state in ("ready", "offline"):
            return _start_again(folder, pool, member, seen)
    except ConflictError:
        return replace(seen, why="another worker is starting its forwarder")
    why = "its forwarder has not been started yet"
    return replace(seen, why=why if member.state == "creating" else "its forwarder has ended")


def _start_again(folder: Path, pool: PoolSnapshot, member: MemberSnapshot, seen: Seen) -> Seen:
    """A forwarder that ended is started again at once: its plan is in its folder."""
    if not (folder / PLAN).exists():
        why = "the folder of its forwarder is gone: restart the member"
        return replace(seen, why=why, is_down=True)
    why = why_ended(folder, detached.read(folder))
    process = _run(folder, pool, member)
    if process is None:
        why = f"{why} {len(list_starts(folder))} times in a short time; see {folder}/{LOG}"
        return replace(seen, why=why, is_down=True)
    level = logging.INFO if why == ASKED else logging.WARNING
    logger.log(level, "the forwarder of %s was started again: %s", member.name, why)
    until = time.monotonic() + LOOK
    while detached.is_alive(process) and time.monotonic() < until:
        if (found := _observe_running(folder, pool, member, seen)).is_ready:
            return found
        time.sleep(TICK)
    return replace(seen, why="its forwarder is being started")


def _replace_stuck(folder: Path, pool: PoolSnapshot, member: MemberSnapshot, seen: Seen) -> Seen:
    process = find_process(folder, member.incarnation)
    with start_lock(folder):
        if process is not None and _is_current(process, member):
            end_process(folder, process)
    return _start_again(folder, pool, member, seen)


def _observe_running(folder: Path, pool: PoolSnapshot, member: MemberSnapshot, seen: Seen) -> Seen:
    before = _list_busy_now(folder)
    try:
        answer = _ask_state(folder, pool, member)
    except NotAnswering:
        if record_answer(folder, answered=False):
            return _replace_stuck(folder, pool, member, seen)
        return replace(seen, why="its forwarder does not answer")
    record_answer(folder, answered=True)
    _mark_stop(folder, pool)
    if not answer["bind"] and member.state != "creating":
        why = "its forwarder has lost its plan: restart the member"
        return replace(seen, why=why, is_down=True)
    return replace(
        seen,
        is_ready=member.state != "creating",
        addresses=tuple(answer["bind"]),
        slots=_see_slots(folder, pool, member, answer, before),
    )


def _ask_state(folder: Path, pool: PoolSnapshot, member: MemberSnapshot) -> Answer:
    """The state of a forwarder. A forwarder with earlier options of the pool gets the present
    ones, because a change of options alone is no operation of its lane.
    """
    answer = ask(folder, {"do": "describe"}, LOOK)
    wanted = options.forward_options(pool.options)
    bind = addresses.assign(forwarders_home(), folder)
    is_current = answer["options"] == asdict(wanted) and answer["bind"] == list(bind)
    if is_current or member.state not in ("ready", "offline") or not answer["bind"]:
        return answer
    with suppress(ProviderError):
        return _send_options(folder, member, bind, wanted)
    return answer


def _send_options(
    folder: Path, member: MemberSnapshot, bind: Sequence[str], wanted: ForwardOptions
) -> Answer:
    request = {"do": "options", "incarnation": member.incarnation, "bind": list(bind)}
    return ask(folder, request | {"options": asdict(wanted)}, LOOK)


def _list_busy_now(folder: Path) -> Mapping[Place, str]:
    return list_busy(addresses.assign(forwarders_home(), folder))


def _see_slots(
    folder: Path,
    pool: PoolSnapshot,
    member: MemberSnapshot,
    answer: Answer,
    before: Mapping[Place, str],
) -> tuple[SeenSlot, ...]:
    """`before`: the ports that were in use before the forwarder answered. A port that came into
    use later may be a listener that a sync opened after the answer.
    """
    busy = list_busy(answer["bind"])
    known = {place: busy[place] for place in busy if place in before}
    return add_foreign(describe_slots(folder.name, answer), pool, member, known)


def _report_down(folder: Path, member: MemberSnapshot) -> MemberReport:
    """Without a process no traffic is forwarded: all draining slots are empty."""
    why = why_ended(folder, detached.read(folder))
    pause = pause_before_start(folder) + TICK
    if member.state == "creating":
        return MemberReport(external_id=folder.name, why=why, again=pause)
    draining = frozenset(slot.id for slot in member.slots if slot.state == "draining")
    return MemberReport(clean=draining, external_id=folder.name, down=why, again=pause)
