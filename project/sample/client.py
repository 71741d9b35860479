"""A small client of the HTTP API: one connection, a token, and retries while the server restarts.
Standard library only.
"""

import http.client
import json
import sys
import time
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

TIMEOUT = 10.0
FIRST_PAUSE, LONGEST_PAUSE = 0.1, 5.0


class SampleUnauthorised(Exception):
    """The token is rejected."""


@dataclass(frozen=True, slots=True)
class SampleAnswer:
    status: int
    body: Any
    etag: str = ""

    @property
    def is_success(self) -> bool:
        return 200 <= self.status < 300


class SampleClient:
    def __init__(self, url: str, token: str) -> None:
        at = urlsplit(url)
        self.is_https = at.scheme == "https"
        self.host, self.port = at.hostname or "127.0.0.1", at.port
        self.prefix = at.path.rstrip("/") + "/api/v1/"
        self.token = token
        self.connection: http.client.HTTPConnection | None = None
        self.is_away = False

    def call(
        self, method: str, path: str, body: object = None, key: str = "", etag: str = ""
    ) -> SampleAnswer:
        """Send a request until the server answers it. Only for requests that may be repeated:
        reads, calls with a generation or an ETag, and creates with a key.
        """
        failures = 0
        while True:
            try:
                answer, wait = self._once(method, path, body, key, etag)
            except (OSError, http.client.HTTPException, ValueError) as error:
                self.close()
                answer, wait = SampleAnswer(0, str(error) or type(error).__name__), 0.0
                failures += 1
                if failures == 1:  # mostly an idle connection that the server closed
                    continue
            if answer.status == 401:
                raise SampleUnauthorised(answer.body)
            if answer.status and answer.status != 429 and answer.status < 500:
                self._log_back()
                return answer
            if answer.status != 429:
                self._log_away(answer)
            time.sleep(max(wait, min(FIRST_PAUSE * 2**failures, LONGEST_PAUSE)))
            failures += 1

    def _once(
        self, method: str, path: str, body: object, key: str, etag: str
    ) -> tuple[SampleAnswer, float]:
        if self.connection is None:
            kind = http.client.HTTPSConnection if self.is_https else http.client.HTTPConnection
            self.connection = kind(self.host, self.port, timeout=TIMEOUT)
        headers = {"Authorization": f"Bearer {self.token}", "Accept": "application/json"}
        if key:
            headers["Idempotency-Key"] = key
        if etag:
            headers["If-Match"] = etag
        if body is not None:
            headers["Content-Type"] = "application/json"
        self.connection.request(
            method, self.prefix + path, None if body is None else json.dumps(body), headers
        )
        response = self.connection.getresponse()
        text = response.read()
        retry_after = response.getheader("Retry-After") or "0"
        is_json = "json" in (response.getheader("Content-Type") or "")
        found = json.loads(text) if text and is_json else None
        wait = float(retry_after) if retry_after.replace(".", "", 1).isdigit() else 0.0
        return SampleAnswer(response.status, found, response.getheader("ETag") or ""), wait

    def close(self) -> None:
        if self.connection is not None:
            self.connection.close()
        self.connection = None

    def _log_away(self, answer: SampleAnswer) -> None:
        if not self.is_away:
            log_line(
                f"the server does not answer ({answer.status or answer.body}); trying until it does"
            )
        self.is_away = True

    def _log_back(self) -> None:
        if self.is_away:
            log_line("the server answers again")
        self.is_away = False


def log_line(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()
