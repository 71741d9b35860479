"""Calls to the API server for one namespace: pods, Secrets, the namespace and access reviews."""

from collections.abc import Iterator, Mapping
from urllib.parse import quote

from project.kernel.kubernetes.connections import forget, open_connection
from project.kernel.kubernetes.credentials import Connection
from project.kernel.kubernetes.errors import ApiCall, Expired, ObjectChanged
from project.kernel.kubernetes.objects import Object, name_of, uid_of
from project.kernel.kubernetes.request import RequestSender, parse
from project.kernel.kubernetes.watch_stream import Stream
from project.kernel.outbox.operations import (
    Misconfigured,
    NotFoundOutside,
    ProviderError,
    Unauthorised,
)

PAGE = 500
RESTARTS = 3  # of a list when its pages expire during the read
METHODS = {"get": "GET", "list": "GET", "create": "POST", "patch": "PATCH", "delete": "DELETE"}
REVIEWS = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"


class Api(RequestSender):
    """Pods and Secrets of one namespace. Each failure is a ProviderError."""

    def __init__(self, connection: Connection, namespace: str) -> None:
        super().__init__(connection)
        self.namespace = namespace
        self.place, self.server = f"namespace {namespace} of {connection.words}", connection.server

    # -- pods

    def list_pods(self, selector: str) -> list[Object]:
        """All pods of one moment, never a part: the list starts again if its pages expire."""
        for _ in range(RESTARTS):
            try:
                pages = self._pages("pods", selector)
                return [pod for page in pages for pod in page.get("items") or ()]
            except Expired:
                continue
        raise ProviderError(
            f"The list of pods in {self.place} expires before Berth has read it. Berth tries again."
        )

    def find_version(self, selector: str) -> str:
        """The resource version at which a watch starts that misses no later event."""
        call = ApiCall("list", "pods", place=self.place)
        page = self._request(call, query={"labelSelector": selector, "limit": 1})
        return str((page.get("metadata") or {}).get("resourceVersion") or "")

    def watch_pods(self, selector: str, version: str, seconds: int, read_timeout: float) -> Stream:
        query = {
            "labelSelector": selector, "resourceVersion": version, "watch": "true",
            "allowWatchBookmarks": "true", "timeoutSeconds": seconds,
        }  # fmt: skip
        call = ApiCall("watch", "pods", place=self.place)
        path = self._path(call)
        return Stream(
            self.send("GET", path, call, query=query, read_timeout=read_timeout, is_guarded=False)
        )

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

    def patch_secret(self, secret: Object, change: Object) -> Object:
        """Fails with ObjectChanged if the Secret has changed since it was read."""
        version = secret["metadata"].get("resourceVersion")
        metadata = {**change.get("metadata", {}), "resourceVersion": version}
        call = ApiCall("patch", "secrets", name_of(secret), self.place)
        return self._request(call, body={**change, "metadata": metadata})

    def delete_secret(self, secret: Object) -> None:
        self._delete("secrets", secret, None)

    # -- namespace and rights

    def check_namespace(self) -> str:
        """The uid of the namespace; empty without the right to read it. Raises NamespaceGone."""
        place = f"namespace {self.namespace} in {self.connection.words}"
        call = ApiCall("get", "namespaces", self.namespace, place)
        try:
            found = parse(self.send("GET", f"/api/v1/namespaces/{quote(self.namespace)}", call))
        except Unauthorised:
            return ""
        return str((found.get("metadata") or {}).get("uid") or "")

    def may(self, verb: str, resource: str) -> bool | None:
        """Whether Berth's account has a right in the namespace; None: the server does not say."""
        group, _, name = resource.rpartition("/")
        attributes = {"namespace": self.namespace, "verb": verb, "resource": name, "group": group}
        body = {
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SelfSubjectAccessReview",
            "spec": {"resourceAttributes": attributes},
        }
        call = ApiCall("create", "selfsubjectaccessreviews", place=self.place)
        try:
            found = parse(self.send("POST", REVIEWS, call, body=body))
        except (Misconfigured, NotFoundOutside, Unauthorised):
            return None
        return bool((found.get("status") or {}).get("allowed"))

    # -- requests

    def _path(self, call: ApiCall) -> str:
        path = f"/api/v1/namespaces/{quote(self.namespace)}/{call.resource}"
        return f"{path}/{quote(call.name)}" if call.name and call.verb != "create" else path

    def _get(self, resource: str, name: str) -> Object | None:
        try:
            return self._request(ApiCall("get", resource, name, self.place))
        except NotFoundOutside:
            return None

    def _create(self, resource: str, manifest: Object, *, is_dry: bool) -> Object:
        query = {"fieldValidation": "Strict", "fieldManager": "berth"}
        if is_dry:
            query["dryRun"] = "All"
        call = ApiCall("create", resource, name_of(manifest), self.place)
        return self._request(call, query=query, body=manifest)

    def _delete(self, resource: str, found: Object, grace: int | None) -> None:
        """Delete this object, and no later object of the same name. A missing object is success."""
        body: dict[str, object] = {
            "apiVersion": "v1",
            "kind": "DeleteOptions",
            "preconditions": {"uid": uid_of(found)},
        }
        if grace is not None:
            body["gracePeriodSeconds"] = grace
        try:
            self._request(ApiCall("delete", resource, name_of(found), self.place), body=body)
        except (NotFoundOutside, ObjectChanged):
            return

    def _pages(self, resource: str, selector: str) -> Iterator[Object]:
        query: dict[str, object] = {"labelSelector": selector, "limit": PAGE}
        call = ApiCall("list", resource, place=self.place)
        while True:
            page = self._request(call, query=query)
            if not str(page.get("kind")).endswith("List"):
                # Another server may answer with any JSON. An empty list would call all pods gone.
                raise Misconfigured(
                    f"The answer is no list of {resource} ({self.place}). Check that the context "
                    "names an API server."
                )
            yield page
            token = (page.get("metadata") or {}).get("continue")
            if not token:
                return
            query = {**query, "continue": token}

    def _request(
        self,
        call: ApiCall,
        *,
        query: Mapping[str, object] | None = None,
        body: Object | None = None,
    ) -> Object:
        method, path = METHODS[call.verb], self._path(call)
        return parse(self.send(method, path, call, query=query, body=body))


def api_for(options: Mapping[str, object]) -> Api:
    """The client for the options of a pool. Raises Misconfigured, which names file and fault."""
    connection = open_connection(str(options.get("context") or ""))
    return Api(connection, str(options.get("namespace") or connection.namespace))


__all__ = ["Api", "api_for", "forget"]
