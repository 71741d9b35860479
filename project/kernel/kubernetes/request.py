"""One request to an API server, and its answer as JSON or as a ProviderError.

Only the lower half of the official client is used: the classes it generates for every kind of
object take 80 MB in each process, and refuse what a newer server says.
"""

import json
from collections.abc import Mapping
from typing import Any

import urllib3
from kubernetes.client.exceptions import ApiException
from kubernetes.config import ConfigException

from project.kernel.kubernetes.connections import forget
from project.kernel.kubernetes.credentials import Connection
from project.kernel.kubernetes.deadline import Deadline, within
from project.kernel.kubernetes.errors import ApiCall, describe, explain, too_slow, unreachable
from project.kernel.kubernetes.metrics import timed_request
from project.kernel.outbox.operations import Misconfigured, ProviderError, Unauthorised

CONNECT, READ = 3.0, 10.0  # seconds
TOTAL = 60.0  # for all of an answer: a server that sends a byte now and then is none that answers
GONE = (OSError, urllib3.exceptions.HTTPError, ApiException)


class RequestSender:
    """Each call is one request with its timeouts."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection

    def send(
        self,
        method: str,
        path: str,
        call: ApiCall,
        *,
        query: Mapping[str, Any] | None = None,
        body: Any = None,
        content: str = "application/json",
        patience: float | None = None,
        is_guarded: bool = True,
    ) -> Any:
        breaker = self.connection.breaker
        if is_guarded:
            breaker.enter()
        try:
            with timed_request(method):
                response = self._exchange(
                    method,
                    path,
                    call,
                    query or {},
                    body,
                    content,
                    READ if patience is None else patience,
                )
        except ProviderError as error:
            if is_guarded:
                breaker.leave(error)
            if isinstance(error, Unauthorised):
                forget(self.connection)  # what we sign in with may have been renewed
            raise
        breaker.leave(None)
        return response

    def _exchange(
        self,
        method: str,
        path: str,
        call: ApiCall,
        query: Mapping[str, Any],
        body: Any,
        content: str,
        patience: float,
    ) -> Any:
        """All of the answer, or the beginning of a watch, within the time that a call has."""
        where = f"{self.connection.client.configuration.host}, {self.connection.words}"
        with within(TOTAL) as clock:
            try:
                response = self._converse(
                    method, path, query, body, content, patience, where, clock
                )
            except ProviderError as error:
                if not clock.is_over:
                    raise
                raise too_slow(where, TOTAL) from error
            if clock.is_over:  # what came may be half of it
                raise too_slow(where, TOTAL)
        if not 200 <= response.status <= 299:
            raise explain(response.status, _read_status(response), call, _retry_after(response))
        return response

    def _converse(
        self,
        method: str,
        path: str,
        query: Mapping[str, Any],
        body: Any,
        content: str,
        patience: float,
        where: str,
        clock: Deadline,
    ) -> Any:
        client = self.connection.client
        headers = {"Accept": "application/json", "User-Agent": "berth"} | (
            {"Content-Type": content} if body is not None else {}
        )
        for is_last in (method != "GET", True):
            try:
                words = client.param_serialize(
                    method,
                    path,
                    query_params=list(query.items()),
                    header_params=dict(headers),
                    body=body,
                    auth_settings=["BearerToken"],
                )
                response: Any = client.call_api(*words, _request_timeout=(CONNECT, patience))
                is_stream = query.get("watch") and response.status == 200
                if not is_stream:
                    response.read()
                break
            except ConfigException as error:
                raise Misconfigured(
                    f"Our credentials for {self.connection.words} can't be used: {error}. Mend "
                    "the kubeconfig."
                ) from error
            except urllib3.exceptions.ProtocolError as error:
                # A lasting connection may have been closed by now: that says nothing yet.
                if is_last or clock.is_over:
                    raise unreachable(where, describe(error)) from error
            except GONE as error:
                raise _explain_silence(
                    where, error, patience, client.rest_client.pool_manager
                ) from error
        return response


# -- answers ---------------------------------------------------------------------------------------


def parse(response: Any) -> Mapping[str, Any]:
    try:
        found = json.loads(response.read() or b"{}")
    except (ValueError, RecursionError) as error:
        raise ProviderError(
            "The cluster's answer is no JSON: see that the context names an API server."
        ) from error
    if not isinstance(found, dict):
        raise ProviderError(
            "The cluster's answer is no object: see that the context names an API server."
        )
    return found


def _read_status(response: Any) -> Mapping[str, Any]:
    """The server's own words about a refusal; whatever stands between may answer anything."""
    data = response.read() or b""
    try:
        found = json.loads(data)
    except (ValueError, RecursionError):
        found = None
    return found if isinstance(found, dict) else {"message": data[:300].decode("utf-8", "replace")}


def _retry_after(response: Any) -> float | None:
    text = str(response.headers.get("Retry-After") or "")
    return float(text) if text.isascii() and text.isdigit() else None


def _explain_silence(
    where: str, error: Exception, patience: float, manager: urllib3.PoolManager
) -> ProviderError:
    if isinstance(error, urllib3.exceptions.ProxyError):
        # Without a password, which the configuration may have.
        return _explain_proxy(where, error.original_error, str(manager.proxy))
    # Which the library counts among the timeouts.
    is_refused = isinstance(error, urllib3.exceptions.NewConnectionError)
    if isinstance(error, urllib3.exceptions.ConnectTimeoutError) and not is_refused:
        return unreachable(where, "", timeout=CONNECT)
    if isinstance(error, urllib3.exceptions.ReadTimeoutError | TimeoutError):
        return unreachable(where, "", timeout=patience)
    text = describe(error)
    if isinstance(error, urllib3.exceptions.SSLError) or "certificate" in text.lower():
        return Misconfigured(
            f"The cluster's certificate is not taken ({where}): {text}. Put its authority into "
            "the kubeconfig."
        )
    return unreachable(where, text)


def _explain_proxy(where: str, error: Exception, proxy: str) -> ProviderError:
    is_slow = isinstance(error, urllib3.exceptions.TimeoutError) and not isinstance(
        error, urllib3.exceptions.NewConnectionError
    )
    text = (
        f"the proxy {proxy} does not lead there: "
        f"{f'no answer within {CONNECT:g} s' if is_slow else describe(error)}"
    )
    if isinstance(error, urllib3.exceptions.SSLError):
        return Misconfigured(
            f"The cluster is not reachable ({where}): {text}. See that this machine trusts "
            "its certificate."
        )
    return unreachable(where, text)
