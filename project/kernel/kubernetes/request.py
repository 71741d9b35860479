"""Send one request to an API server; return its answer or raise a ProviderError.

Berth uses only the transport of the official client. The generated classes for each kind of object
take 80 MB in each process, and reject answers of newer servers.
"""

import json
from collections.abc import Mapping

import urllib3
from kubernetes.client.exceptions import ApiException
from kubernetes.config import ConfigException
from urllib3.response import BaseHTTPResponse

from project.kernel.kubernetes.connections import forget
from project.kernel.kubernetes.credentials import Connection
from project.kernel.kubernetes.deadline import within
from project.kernel.kubernetes.errors import (
    ApiCall,
    describe,
    explain,
    no_answer,
    too_slow,
    unreachable,
)
from project.kernel.kubernetes.metrics import timed_request
from project.kernel.kubernetes.objects import Object
from project.kernel.outbox.operations import Misconfigured, ProviderError, Unauthorised

CONNECT, READ = 3.0, 10.0  # seconds
TOTAL = 60.0  # seconds for the whole call, also when the server sends a byte now and then
JSON, MERGE = "application/json", "application/merge-patch+json"
GONE = (OSError, urllib3.exceptions.HTTPError, ApiException)


class RequestSender:
    def __init__(self, connection: Connection) -> None:
        self.connection = connection

    def send(
        self,
        method: str,
        path: str,
        call: ApiCall,
        *,
        query: Mapping[str, object] | None = None,
        body: Object | None = None,
        read_timeout: float | None = None,
        is_guarded: bool = True,
    ) -> BaseHTTPResponse:
        """The whole answer, or the begin of a watch. `is_guarded`: the circuit breaker counts."""
        breaker = self.connection.breaker
        if is_guarded:
            breaker.enter()
        try:
            with timed_request(method):
                response = self._exchange(method, path, query or {}, body, read_timeout or READ)
                if not 200 <= response.status <= 299:
                    raise explain(
                        response.status, _read_status(response), call, _retry_after(response)
                    )
        except ProviderError as error:
            if is_guarded:
                breaker.leave(error)
            if isinstance(error, Unauthorised):
                forget(self.connection)  # the credentials may have been renewed
            raise
        breaker.leave(None)
        return response

    def _exchange(
        self,
        method: str,
        path: str,
        query: Mapping[str, object],
        body: Object | None,
        read_timeout: float,
    ) -> BaseHTTPResponse:
        client, words = self.connection.client, self.connection.words
        where = f"{client.configuration.host}, {words}"
        headers = {"Accept": JSON, "User-Agent": "berth"}
        if body is not None:
            headers["Content-Type"] = MERGE if method == "PATCH" else JSON
        may_repeat = method == "GET"
        with within(TOTAL) as deadline:
            while True:
                try:
                    request = client.param_serialize(
                        method,
                        path,
                        query_params=list(query.items()),
                        header_params=dict(headers),
                        body=body,
                        auth_settings=["BearerToken"],
                    )
                    timeouts = (CONNECT, read_timeout)
                    response: BaseHTTPResponse = client.call_api(
                        *request, _request_timeout=timeouts
                    ).response
                    if not (query.get("watch") and response.status == 200):
                        _ = response.data  # read and kept
                    return response
                except (ConfigException, ProviderError, *GONE) as error:
                    if deadline.is_over:
                        raise too_slow(where, TOTAL) from error
                    if may_repeat and isinstance(error, urllib3.exceptions.ProtocolError):
                        may_repeat = False  # the server may have closed a kept connection
                        continue
                    if isinstance(error, ProviderError):
                        raise
                    proxy = str(client.rest_client.pool_manager.proxy)  # has no password
                    raise _explain_silence(where, words, error, read_timeout, proxy) from error


# -- answers ---------------------------------------------------------------------------------------


def parse(response: BaseHTTPResponse) -> Object:
    try:
        found = json.loads(response.data or b"{}")
    except (ValueError, RecursionError) as error:
        raise ProviderError(
            "The answer of the cluster is not JSON. Check that the context names an API server."
        ) from error
    if not isinstance(found, dict):
        raise ProviderError(
            "The answer of the cluster is not a JSON object. Check that the context names an API "
            "server."
        )
    return found


def _read_status(response: BaseHTTPResponse) -> Object:
    """The server's reason for a refusal. A proxy may answer with any text."""
    data = response.data or b""
    try:
        found = json.loads(data)
    except (ValueError, RecursionError):
        found = None
    return found if isinstance(found, dict) else {"message": data[:300].decode("utf-8", "replace")}


def _retry_after(response: BaseHTTPResponse) -> float | None:
    text = str(response.headers.get("Retry-After") or "")
    return float(text) if text.isascii() and text.isdigit() else None


def _explain_silence(
    where: str, words: str, error: Exception, read_timeout: float, proxy: str
) -> ProviderError:
    if isinstance(error, ConfigException):
        return Misconfigured(
            f"The credentials for {words} can't be used: {error}. Correct the kubeconfig."
        )
    if isinstance(error, urllib3.exceptions.ProxyError):
        return _explain_proxy(where, error.original_error, proxy)
    if _is_connect_timeout(error):
        return no_answer(where, CONNECT)
    if isinstance(error, urllib3.exceptions.ReadTimeoutError | TimeoutError):
        return no_answer(where, read_timeout)
    text = describe(error)
    if isinstance(error, urllib3.exceptions.SSLError) or "certificate" in text.lower():
        return Misconfigured(
            f"The certificate of the cluster is not trusted ({where}): {text}. Add its authority "
            "to the kubeconfig."
        )
    return unreachable(where, text)


def _explain_proxy(where: str, error: Exception, proxy: str) -> ProviderError:
    is_slow = _is_connect_timeout(error) or isinstance(error, urllib3.exceptions.ReadTimeoutError)
    fault = f"no answer within {CONNECT:g} s" if is_slow else describe(error)
    text = f"the proxy {proxy} opens no connection: {fault}"
    if isinstance(error, urllib3.exceptions.SSLError):
        return Misconfigured(
            f"The cluster is not reachable ({where}): {text}. Make this machine trust the "
            "certificate of the proxy."
        )
    return unreachable(where, text)


def _is_connect_timeout(error: Exception) -> bool:
    """urllib3 counts refused connections among the timeouts."""
    return isinstance(error, urllib3.exceptions.ConnectTimeoutError) and not isinstance(
        error, urllib3.exceptions.NewConnectionError
    )
