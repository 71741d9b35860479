"""Reports a finished run to the server: its log, its files, then its result. The next start of the
agent continues an interrupted report; the server accepts a result once.
"""

from __future__ import annotations

import shutil
import threading
from pathlib import Path
from typing import TYPE_CHECKING

from .common.errors import RequestRefused, ServerUnavailable, TokenRejected
from .common.json_types import Json
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
        self.log_folder = context.state.log_folders / record.name

    def report(self) -> None:
        quit_now: threading.Event = self.context.quit_now
        backoff = RetryDelay()
        try:
            self._ship_log()
        except Exception as error:  # the result matters more than the log
            self.context.log.trace("log not sent", error, run=self.record.name)
        while not quit_now.is_set():
            try:
                self._send()
                break
            except (ServerUnavailable, TokenRejected) as error:
                delay = backoff.next()
                self.context.log.info(
                    "result not sent", run=self.record.name, error=error, again_s=round(delay, 1)
                )
                quit_now.wait(delay)
        else:
            return
        self._save(self.record)
        self._clear()

    def report_lost(self) -> None:
        """Upload the log of a lost run. The server knows of its end already."""
        is_rescued = bool(self.record.extra.get("rescued"))
        self._ship_log(
            "Berth: the state was not saved; the agent rescued it and uploads it"
            if is_rescued
            else ""
        )
        if not self.context.quit_now.is_set():
            self._clear()

    def _ship_log(self, last_words: str = "") -> None:
        """Upload the rest of the log."""
        if not self.log_folder.is_dir():
            return
        log_buffer = LogBuffer.reopen(self.log_folder)
        if last_words:
            log_buffer.append_line(last_words)
        log_buffer.end()
        log = self.context.log.bind(self.record.name)
        shipper = LogUploader(
            self.context.client,
            f"{self.record.path}log/",
            log_buffer,
            self.context.limits.chunk_bytes,
            self.context.quit_now,
            log,
        )
        shipper.next = self.record.log_next
        shipper.run()
        self.record.log_next = shipper.next
        if self.record.result:
            self.record.result["log"]["next"] = shipper.next
        log_buffer.close()

    def _send(self) -> None:
        record = self.record
        result: Json = record.result or {
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
            self.context.log.info(
                "reported",
                run=record.name,
                outcome=result["outcome"],
                state=answer.get("state"),
                keep=record.keep,
            )
        except RequestRefused as error:
            self.context.log.info(
                "result refused", run=record.name, outcome=result["outcome"], error=error
            )
            record.keep = False
        record.phase = REPORTED

    def _post(self, path: str, result: Json) -> Json:
        """Post the result; if the server rejects its form, post only the required fields."""
        try:
            return self.context.client.post(path, result, timeout=30)
        except RequestRefused as error:
            if error.status not in (400, 422):
                raise
            self.context.log.error("result rejected", run=self.record.name, error=error)
            return self.context.client.post(
                path, {name: result.get(name) for name in BARE}, timeout=30
            )

    def _put(self, name: str, file: Path, kind: str, code: str, has_digest: bool = False) -> None:
        """Upload a file of the plan. If the server refuses it, the task fails, because an approver
        could not see the plan.
        """
        record = self.record
        try:
            headers = {"Berth-Digest": digest_file(file)} if has_digest else {}
            self.context.client.put(f"{record.path}{name}", file, kind, headers)
        except RequestRefused as error:
            if error.code == "digest_differs":
                raise ServerUnavailable("the plan did not arrive whole") from error
            if "stale" in error.code or error.status == 404:
                return  # the server also refuses the result, and records that
            code = "plan_too_large" if error.status == TOO_LARGE else code
            self._fail(code, f"The server refuses the plan: {error.detail or error.code}")
        except FileNotFoundError:
            self._fail("disk_full", "The plan is no longer on the agent's disk.")

    def _put_state(self) -> None:
        """Upload a rescued state before the result, which frees the slot. If the server refuses the
        state, the result says that only this agent has it.
        """
        record = self.record
        self._rescue_again()
        file = rescued_file(self.context.state.folder, record.name)
        if not file.is_file():
            return
        try:
            send_state(self.context.client, record.key, file)
            self.context.log.info("rescued state sent", run=record.name)
            return
        except RequestRefused as error:
            self.context.log.error("rescued state refused", run=record.name, error=error, file=file)
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
        """Rescue a state that could not be copied before. The result waits for that, because the
        folder is removed after the report. The uploaded log is removed to make room.
        """
        state = self.context.state.folder
        if not is_left_behind(state, self.record):
            return
        shutil.rmtree(self.log_folder, ignore_errors=True)
        if not rescue_state(state, self.record):
            raise ServerUnavailable(
                f"the state of the apply cannot be copied to {rescued_folder(state)}: free some "
                "space there"
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
        """Save the record. After an error, the memory of this process has the facts, and the next
        start repeats the report.
        """
        try:
            self.context.state.save(record)
        except OSError as error:
            self.context.log.error("record not saved", run=record.name, error=error)

    def _clear(self) -> None:
        shutil.rmtree(self.log_folder, ignore_errors=True)
        records = [
            each for each in self.context.state.list_records() if each.claim == self.record.claim
        ]
        is_newest = all(each.generation <= self.record.generation for each in records)
        if not self.record.keep:
            remove(self.context.base / self.record.name)
            if is_newest:
                remove(self.folder.top)
        # Folders of earlier plans of the claim go, unless a newer run may work there.
        for each in records if is_newest else ():
            if each.keep and each.generation < self.record.generation:
                each.keep = False
                remove(self.context.base / each.name)
                self._save(each)


def size_of(file: Path) -> int:
    try:
        return file.stat().st_size
    except OSError:
        return 0
