"""Hands a finished run to the server: its log, its files, then its result, which is taken once.
Survives any end of this process.
"""

from __future__ import annotations

import shutil
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .common.errors import RequestRefused, ServerUnavailable, TokenRejected
from .common.state import REPORTED, Record
from .executors.state_rescue import is_left_behind, rescue_state
from .logs.log_buffer import LogBuffer
from .logs.log_upload import LogUploader
from .server.client import RetryDelay
from .state_upload import send_state
from .workdir.folders import Folder, digest_file, remove, rescued_file, rescued_folder

if TYPE_CHECKING:
    from .runner import Context

TOO_LARGE = 413
BARE = ("outcome", "exit_code", "code", "digest")


class Reporter:
    def __init__(self, context: Context, record: Record) -> None:
        self.context, self.record = context, record
        self.folder = Folder(context.base / str(record.extra.get("folder") or record.name))
        self.spool_folder = context.state.spools / record.name

    def report(self) -> None:
        quit_now: threading.Event = self.context.quit_now
        backoff = RetryDelay()
        try:
            self._ship_log()
        except Exception as error:  # how it ended matters more
            self.context.journal.trace("log not sent", error, run=self.record.name)
        while not quit_now.is_set():
            try:
                self._send()
                break
            except (ServerUnavailable, TokenRejected) as error:
                delay = backoff.next()
                self.context.journal.note(
                    "result not sent", run=self.record.name, error=error, again_s=round(delay, 1)
                )
                quit_now.wait(delay)
        else:
            return
        self._save(self.record)
        self._clear()

    def report_lost(self) -> None:
        """Its end is known to the server; the log that exists is kept."""
        is_rescued = bool(self.record.extra.get("rescued"))
        self._ship_log(
            "Berth: the state was not saved; the agent rescued it and uploads it"
            if is_rescued
            else ""
        )
        if not self.context.quit_now.is_set():
            self._clear()

    def _ship_log(self, last_words: str = "") -> None:
        """What an earlier start of the agent, or the thread beside the run, has not sent."""
        if not self.spool_folder.is_dir():
            return
        spool = LogBuffer.again(self.spool_folder)
        if last_words:
            spool.say(last_words)
        spool.end()
        saying = self.context.journal.saying(self.record.name)
        shipper = LogUploader(
            self.context.client,
            f"{self.record.path}log/",
            spool,
            self.context.limits.chunk_bytes,
            self.context.quit_now,
            saying,
        )
        shipper.next = self.record.log_next
        shipper.run()
        self.record.log_next = shipper.next
        if self.record.result:
            self.record.result["log"]["next"] = shipper.next
        spool.close()

    def _send(self) -> None:
        record = self.record
        result: dict[str, Any] = record.result or {
            "outcome": "failed",
            "code": "killed",
            "reason": "The agent lost its result.",
        }
        if record.has_plan and result["outcome"] == "planned":
            self._put(
                "plan/",
                self.folder.saved_plan,
                "application/octet-stream",
                "plan_refused",
                has_digest=True,
            )
        if record.has_json and result["outcome"] in ("planned", "no_changes"):
            self._put("plan-json/", self.folder.plan_json, "application/json", "not_json")
        self._put_state()
        result = record.result or result
        try:
            answer = self._post(f"{record.path}result/", result)
            record.keep = (
                bool(answer.get("keep")) and record.step == "plan" and self.folder.is_there
            )
            self.context.journal.note(
                "reported",
                run=record.name,
                outcome=result["outcome"],
                state=answer.get("state"),
                keep=record.keep,
            )
        except RequestRefused as error:
            self.context.journal.note(
                "result refused", run=record.name, outcome=result["outcome"], error=error
            )
            record.keep = False
        record.phase = REPORTED

    def _post(self, path: str, result: dict[str, Any]) -> dict[str, Any]:
        """A server that does not take all of it hears at least how it ended."""
        try:
            return self.context.client.post(path, result, timeout=30)
        except RequestRefused as error:
            if error.status not in (400, 422):
                raise
            self.context.journal.error("result not understood", run=self.record.name, error=error)
            return self.context.client.post(
                path, {name: result.get(name) for name in BARE}, timeout=30
            )

    def _put(self, name: str, file: Path, kind: str, code: str, has_digest: bool = False) -> None:
        """What the server does not take makes the plan fail: nobody could approve what
        nobody has.
        """
        record = self.record
        try:
            headers = {"Berth-Digest": digest_file(file)} if has_digest else {}
            self.context.client.put(f"{record.path}{name}", file, kind, headers)
        except RequestRefused as error:
            if error.code == "digest_differs":
                raise ServerUnavailable("the plan did not arrive whole") from error
            if "stale" in error.code or error.status == 404:
                return  # the result says so, too, and is kept as an event
            code = "plan_too_large" if error.status == TOO_LARGE else code
            self._fail(code, f"The server does not take the plan: {error.detail or error.code}")
        except FileNotFoundError:
            self._fail("disk_full", "The plan is no longer on the agent's disk.")

    def _put_state(self) -> None:
        """Before the result, which frees the slot. Where the server refuses the state, the
        result says that only this agent has it.
        """
        record = self.record
        self._rescue_again()
        file = rescued_file(self.context.state.folder, record.name)
        if not file.is_file():
            return
        try:
            send_state(self.context.client, (record.claim, record.generation), file)
            self.context.journal.note("rescued state sent", run=record.name)
            return
        except RequestRefused as error:
            self.context.journal.error(
                "rescued state refused", run=record.name, error=error, file=file
            )
            why = error.detail or error.code
        except OSError as error:
            why = f"{error}"
        result = record.result or {}
        if "state" not in result:
            reason = (
                f"{result.get('reason') or ''} The server does not have the state ({why}); the "
                f"agent keeps it as {file}."
            ).strip()
            record.result = {**result, "reason": reason, "state": {"size": size_of(file)}}
            self._save(record)

    def _rescue_again(self) -> None:
        """Nothing is reported before the state is rescued, because the folder that holds it goes
        after the report. The log has been sent, and its copy here makes room."""
        state = self.context.state.folder
        if not is_left_behind(state, self.record):
            return
        shutil.rmtree(self.spool_folder, ignore_errors=True)
        if not rescue_state(state, self.record):
            raise ServerUnavailable(
                f"the state that the apply left cannot be copied to {rescued_folder(state)}: "
                "make room there"
            )
        self._save(self.record)

    def _fail(self, code: str, reason: str) -> None:
        self.record.has_plan = self.record.has_json = False
        self.record.result = {
            **(self.record.result or {}),
            "outcome": "failed",
            "code": code,
            "reason": reason,
        }
        self._save(self.record)

    def _save(self, record: Record) -> None:
        """What is only known here is enough until this process ends: the next start says it
        once more.
        """
        try:
            self.context.state.save(record)
        except OSError as error:
            self.context.journal.error("not written down", run=record.name, error=error)

    def _clear(self) -> None:
        shutil.rmtree(self.spool_folder, ignore_errors=True)
        others = [
            other for other in self.context.state.list_records() if other.claim == self.record.claim
        ]
        is_newest = all(other.generation <= self.record.generation for other in others)
        if not self.record.keep:
            remove(self.context.base / self.record.name)
            if is_newest:
                remove(self.folder.top)
        # An earlier plan of the claim, or the one that was applied now; a newer one may be in it.
        for other in others if is_newest else ():
            if other.keep and other.generation < self.record.generation:
                other.keep = False
                remove(self.context.base / other.name)
                self._save(other)


def size_of(file: Path) -> int:
    try:
        return file.stat().st_size
    except OSError:
        return 0
