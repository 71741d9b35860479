"""The API server of a context, through the official client: its configuration, credentials and TLS; answers stay JSON.

Only the client's lower half is used: the classes it generates for every kind of object take 80 MB in each process, and refuse what a newer
server says. Nothing is global: a process may talk with many clusters, and with a new kubeconfig as soon as the file changes.
"""

import hashlib
import json
import os
import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar
from urllib.parse import quote

import urllib3
import yaml
from kubernetes import config as untyped
from kubernetes.client.api_client import ApiClient
from kubernetes.client.configuration import Configuration
from kubernetes.client.exceptions import ApiException
from kubernetes.config import ConfigException

from pools.providers.kubernetes.breaker import Breaker
from pools.providers.kubernetes.errors import AlreadyThere, AnotherByNow, Call, Expired, explain, too_slow, unreachable
from pools.providers.kubernetes.limits import Clock, limit_pools, within
from pools.providers.kubernetes.names import Object, name_of, uid_of
from pools.providers.kubernetes.plugins import forget_failure, raise_failure
from pools.providers.kubernetes.stream import Stream
from project.kernel.operations import Misconfigured, NotFoundOutside, ProviderError, Unauthorised

CONNECT, READ = 3.0, 10.0  # seconds
TOTAL = 60.0  # for all of an answer: a server that sends a byte now and then is none that answers
PAGE = 500
RESTARTS = 3  # of a list whose pages expired under it
CONNECTIONS = 16  # kept open
SIGN_IN = 15.0  # seconds to wait for another thread that signs in
REFUSED_FOR = 5.0  # seconds in which who could not sign in need not be asked again
MERGE = "application/merge-patch+json"
OWN_NAMESPACE = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")
DEFAULT_NAMESPACE = "default"
CONFIGS = ("BERTH_KUBECONFIG", "KUBECONFIG")
CONFIG: Any = untyped
GONE = (OSError, urllib3.exceptions.HTTPError, ApiException)


@dataclass(frozen=True, slots=True)
class Connection:
    """To the API server of a context, for all pools there."""

    client: ApiClient
    namespace: str  # where none is named
    words: str  # "context prod"
    breaker: Breaker
    stamp: Any  # of the files it was made from
    server: str  # its address and authority, in short


class Api:
    """Pods and Secrets of one namespace. Each call is one request with its timeouts; what fails is raised as a ProviderError."""

    role: ClassVar[str] = "pods and secrets of one namespace"

    def __init__(self, connection: Connection, namespace: str) -> None:
        self.connection, self.namespace = connection, namespace
        self.place, self.server = f"namespace {namespace} of {connection.words}", connection.server

    # -- pods

    def list_pods(self, selector: str) -> list[Object]:
        """All of them, from one moment. A list whose pages expire is begun anew; half a list is never answered."""
        for _ in range(RESTARTS):
            try:
                return [pod for page in self._pages("pods", selector) for pod in page.get("items") or ()]
            except Expired:
                continue
        raise ProviderError(f"The list of pods in {self.place} expires before it is read, again and again. It is asked again by itself.")

    def find_version(self, selector: str) -> str:
        """Where a watch may begin that misses nothing from now on."""
        page = self._request("GET", "pods", Call("list", "pods", place=self.place), query={"labelSelector": selector, "limit": 1})
        return str((page.get("metadata") or {}).get("resourceVersion") or "")

    def watch_pods(self, selector: str, version: str, seconds: int, patience: float) -> Stream:
        query = {
            "labelSelector": selector, "resourceVersion": version, "watch": "true", "allowWatchBookmarks": "true",
            "timeoutSeconds": seconds,
        }  # fmt: skip
        call = Call("watch", "pods", place=self.place)
        response = self._send("GET", self._path("pods"), call, query=query, timeout=(CONNECT, patience), is_guarded=False)
        return Stream(response.response)

    def get_pod(self, name: str) -> Object | None:
        return self._get("pods", name)

    def create_pod(self, manifest: Object, *, is_dry: bool = False) -> Object:
        return self._create("pods", manifest, is_dry=is_dry)

    def delete_pod(self, pod: Object, grace: int | None = None) -> None:
        self._delete("pods", pod, grace)

    # -- secrets

    def get_secret(self, name: str) -> Object | None:
        return self._get("secrets", name)

    def create_secret(self, manifest: Object, *, is_dry: bool = False) -> Object:
        return self._create("secrets", manifest, is_dry=is_dry)

    def patch_secret(self, secret: Object, change: Mapping[str, Any]) -> Object:
        """Only if it is still as it was read."""
        metadata = {**change.get("metadata", {}), "resourceVersion": secret["metadata"].get("resourceVersion")}
        call = Call("patch", "secrets", name_of(secret), self.place)
        return self._request("PATCH", f"secrets/{name_of(secret)}", call, body={**change, "metadata": metadata}, content=MERGE)

    def delete_secret(self, secret: Object) -> None:
        self._delete("secrets", secret, None)

    # -- around them

    def check_namespace(self) -> str:
        """Its uid; empty where we may not ask. Raises NamespaceGone."""
        call = Call("get", "namespaces", self.namespace, f"namespace {self.namespace} in {self.connection.words}")
        try:
            found = _parse(self._send("GET", f"/api/v1/namespaces/{quote(self.namespace)}", call))
        except Unauthorised:
            return ""
        return str((found.get("metadata") or {}).get("uid") or "")

    def may(self, verb: str, resource: str) -> bool | None:
        """Whether our account may do this here; None: the server does not say."""
        group, _, name = resource.rpartition("/")
        attributes = {"namespace": self.namespace, "verb": verb, "resource": name, "group": group}
        body = {"apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview", "spec": {"resourceAttributes": attributes}}
        call = Call("create", "selfsubjectaccessreviews", place=self.place)
        try:
            found = _parse(self._send("POST", "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", call, body=body))
        except (Misconfigured, NotFoundOutside, Unauthorised):
            return None
        return bool((found.get("status") or {}).get("allowed"))

    # -- requests

    def _path(self, rest: str) -> str:
        return f"/api/v1/namespaces/{quote(self.namespace)}/{rest}"

    def _get(self, resource: str, name: str) -> Object | None:
        try:
            return self._request("GET", f"{resource}/{quote(name)}", Call("get", resource, name, self.place))
        except NotFoundOutside:
            return None

    def _create(self, resource: str, manifest: Object, *, is_dry: bool) -> Object:
        query: dict[str, Any] = {"fieldValidation": "Strict", "fieldManager": "berth"}
        if is_dry:
            query["dryRun"] = "All"
        return self._request("POST", resource, Call("create", resource, name_of(manifest), self.place), query=query, body=manifest)

    def _delete(self, resource: str, found: Object, grace: int | None) -> None:
        """This object and no other of its name. One that is not there any more, or another by now, is gone."""
        body: dict[str, Any] = {"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": {"uid": uid_of(found)}}
        if grace is not None:
            body["gracePeriodSeconds"] = grace
        try:
            self._request("DELETE", f"{resource}/{quote(name_of(found))}", Call("delete", resource, name_of(found), self.place), body=body)
        except (NotFoundOutside, AnotherByNow):
            return

    def _pages(self, resource: str, selector: str) -> Iterator[Mapping[str, Any]]:
        query: dict[str, Any] = {"labelSelector": selector, "limit": PAGE}
        while True:
            page = self._request("GET", resource, Call("list", resource, place=self.place), query=query)
            if not str(page.get("kind")).endswith("List"):
                # Some other server with some JSON: to take it for an empty list would call all pods gone.
                raise Misconfigured(f"The answer is no list of {resource} ({self.place}). See that the context names an API server.")
            yield page
            token = (page.get("metadata") or {}).get("continue")
            if not token:
                return
            query = {**query, "continue": token}

    def _request(
        self,
        method: str,
        rest: str,
        call: Call,
        *,
        query: Mapping[str, Any] | None = None,
        body: Any = None,
        content: str = "application/json",
    ) -> Mapping[str, Any]:
        return _parse(self._send(method, self._path(rest), call, query=query, body=body, content=content))

    def _send(
        self,
        method: str,
        path: str,
        call: Call,
        *,
        query: Mapping[str, Any] | None = None,
        body: Any = None,
        content: str = "application/json",
        timeout: tuple[float, float] = (CONNECT, READ),
        is_guarded: bool = True,
    ) -> Any:
        breaker = self.connection.breaker
        if is_guarded:
            breaker.enter()
        try:
            response = self._exchange(method, path, call, query or {}, body, content, timeout)
        except ProviderError as error:
            if is_guarded:
                breaker.leave(error)
            if isinstance(error, Unauthorised):
                forget(self.connection)  # what we sign in with may have been renewed
            raise
        breaker.leave(None)
        return response

    def _exchange(
        self, method: str, path: str, call: Call, query: Mapping[str, Any], body: Any, content: str, timeout: tuple[float, float]
    ) -> Any:
        """All of the answer, or the beginning of a watch, within the time that a call has."""
        where = f"{self.connection.client.configuration.host}, {self.connection.words}"
        with within(TOTAL) as clock:
            try:
                response = self._converse(method, path, query, body, content, timeout, where, clock)
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
        timeout: tuple[float, float],
        where: str,
        clock: Clock,
    ) -> Any:
        client = self.connection.client
        headers = {"Accept": "application/json", "User-Agent": "berth"} | ({"Content-Type": content} if body is not None else {})
        for is_last in (method != "GET", True):
            try:
                words = client.param_serialize(
                    method, path, query_params=list(query.items()), header_params=dict(headers), body=body, auth_settings=["BearerToken"]
                )
                response: Any = client.call_api(*words, _request_timeout=timeout)
                is_stream = query.get("watch") and response.status == 200
                if not is_stream:
                    response.read()
                break
            except ConfigException as error:
                raise Misconfigured(f"Our credentials for {self.connection.words} can't be used: {error}. Mend the kubeconfig.") from error
            except urllib3.exceptions.ProtocolError as error:
                if is_last or clock.is_over:  # a lasting connection may have been closed by now: that says nothing yet
                    raise unreachable(where, _describe(error)) from error
            except GONE as error:
                raise _explain_silence(where, error, timeout[1]) from error
        return response


# -- connections ---------------------------------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class Door:
    """To a context. Signing in may take long, or for ever: it holds up who wants to go there, and nobody who goes elsewhere."""

    lock: threading.Lock = field(default_factory=threading.Lock)
    connection: Connection | None = None
    error: ProviderError | None = None
    stamp: Any = None  # of the files that it was refused with
    closed_until: float = 0.0  # monotonic

    def open(self, context: str) -> Connection:
        if not self.lock.acquire(timeout=SIGN_IN):
            raise ProviderError(f"Signing in to {_words(context)} takes long. It is asked again by itself.", retry_after=REFUSED_FOR)
        try:
            known = self.connection
            if known is not None and known.stamp == _stamp(context):
                return known
            if self.error is not None and self.stamp == _stamp(context) and time.monotonic() < self.closed_until:
                raise type(self.error)(str(self.error), retry_after=REFUSED_FOR)
            return self._sign_in(context)
        finally:
            self.lock.release()

    def _sign_in(self, context: str) -> Connection:
        self.connection, self.error, self.stamp = None, None, _stamp(context)
        try:
            self.connection = _connect(context)
        except ProviderError as error:
            self.error, self.closed_until = error, time.monotonic() + REFUSED_FOR
            raise
        return self.connection


_doors: dict[str, Door] = {}
_looking_up = threading.Lock()


def api_for(options: Mapping[str, Any]) -> Api:
    """Of a pool's options. Raises Misconfigured, whose words say which file lacks what."""
    context = str(options.get("context") or "")
    with _looking_up:
        door = _doors.setdefault(context, Door())
    connection = door.open(context)
    return Api(connection, str(options.get("namespace") or connection.namespace))


def forget(connection: Connection | None = None) -> None:
    """Signs in anew with the next call. None: everywhere, and who failed is tried at once."""
    with _looking_up:
        if connection is None:
            _doors.clear()
        for door in _doors.values():
            if door.connection is connection:
                door.connection = None


def config_files() -> list[Path]:
    told = next((os.environ[name] for name in CONFIGS if os.environ.get(name)), "~/.kube/config")
    return [Path(name).expanduser() for name in told.split(os.pathsep) if name]


def _connect(context: str) -> Connection:
    configuration: Any = Configuration()
    configuration.retries = False  # we have a clock of our own for that
    configuration.connection_pool_maxsize = CONNECTIONS
    stamp = _stamp(context)
    namespace = _read_config(context, configuration) if context else _read_own(configuration)
    client = ApiClient(configuration)
    limit_pools(client.rest_client.pool_manager)
    return Connection(client, namespace, _words(context), Breaker(), stamp, _digest(configuration))


def _digest(configuration: Any) -> str:
    file = configuration.ssl_ca_cert
    authority = Path(file).read_bytes() if file and Path(file).is_file() else b""
    return hashlib.sha256(f"{configuration.host}\n".encode() + authority).hexdigest()[:16]


def _words(context: str) -> str:
    return f"context {context}" if context else "this cluster"


def _read_config(context: str, configuration: Any) -> str:
    files = config_files()
    if not any(file.is_file() for file in files):
        names = ", ".join(map(str, files))
        raise Misconfigured(
            f"There is no kubeconfig at {names}, so context {context} is not known. Put it there, or name it in BERTH_KUBECONFIG "
            "for web, controllers and workers alike."
        )
    told = os.pathsep.join(map(str, files))
    try:
        contexts, _ = CONFIG.list_kube_config_contexts(told)
        known = {str(each["name"]): each.get("context") or {} for each in contexts}
        if context not in known:
            names = ", ".join(sorted(known)) or "none"
            raise Misconfigured(f"The kubeconfig {told} has no context {context}. Add it there, or name one of: {names}.")
        forget_failure()
        CONFIG.load_kube_config(told, context=context, client_configuration=configuration, persist_config=False)
    except (ConfigException, OSError, yaml.YAMLError, TypeError, KeyError, ValueError) as error:
        raise Misconfigured(f"The kubeconfig {told} can't be used for context {context}: {_describe(error)}. Mend it.") from error
    raise_failure()
    return str(known[context].get("namespace") or DEFAULT_NAMESPACE)


def _read_own(configuration: Any) -> str:
    try:
        CONFIG.load_incluster_config(client_configuration=configuration)
    except (ConfigException, OSError) as error:
        raise Misconfigured(
            f"No context is named, and this process runs in no cluster ({_describe(error)}). Name one in provider.context, "
            "or mount a service account's token."
        ) from error
    return OWN_NAMESPACE.read_text().strip() if OWN_NAMESPACE.is_file() else DEFAULT_NAMESPACE


def _stamp(context: str) -> Any:
    """Equal as long as the files are: those of a kubeconfig; the token of our own account is read again by the client."""
    if not context:
        return os.environ.get("KUBERNETES_SERVICE_HOST", ""), os.environ.get("KUBERNETES_SERVICE_PORT", "")
    return tuple((file, info.st_mtime_ns, info.st_ino, info.st_size) if (info := _stat(file)) else (file,) for file in config_files())


def _stat(file: Path) -> os.stat_result | None:
    try:
        return file.stat()
    except OSError:
        return None


# -- answers -------------------------------------------------------------------------------------------------------------------------------


def _parse(response: Any) -> Mapping[str, Any]:
    try:
        found = json.loads(response.read() or b"{}")
    except (ValueError, RecursionError) as error:
        raise ProviderError("The cluster's answer is no JSON: see that the context names an API server.") from error
    if not isinstance(found, dict):
        raise ProviderError("The cluster's answer is no object: see that the context names an API server.")
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


def _explain_silence(where: str, error: Exception, patience: float) -> ProviderError:
    is_refused = isinstance(error, urllib3.exceptions.NewConnectionError)  # which the library counts among the timeouts
    if isinstance(error, urllib3.exceptions.ConnectTimeoutError) and not is_refused:
        return unreachable(where, "", timeout=CONNECT)
    if isinstance(error, urllib3.exceptions.ReadTimeoutError | TimeoutError):
        return unreachable(where, "", timeout=patience)
    text = _describe(error)
    if isinstance(error, urllib3.exceptions.SSLError) or "certificate" in text.lower():
        return Misconfigured(f"The cluster's certificate is not taken ({where}): {text}. Put its authority into the kubeconfig.")
    return unreachable(where, text)


def _describe(error: BaseException) -> str:
    text = str(getattr(error, "reason", "") or error) or type(error).__name__
    return " ".join(text.split())[:200].rstrip(".")


__all__ = ["AlreadyThere", "Api", "Breaker", "Stream", "api_for", "forget"]
