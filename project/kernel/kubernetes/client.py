"""What is asked of an API server: pods and Secrets of one namespace, and what surrounds them."""

from collections.abc import Iterator, Mapping
from typing import Any, ClassVar
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
RESTARTS = 3  # of a list whose pages expired under it
MERGE = "application/merge-patch+json"


class Api(RequestSender):
    """Pods and Secrets of one namespace. What fails is raised as a ProviderError."""

    role: ClassVar[str] = "pods and secrets of one namespace"

    def __init__(self, connection: Connection, namespace: str) -> None:
        super().__init__(connection)
        self.namespace = namespace
        self.place, self.server = f"namespace {namespace} of {connection.words}", connection.server

    # -- pods

    def list_pods(self, selector: str) -> list[Object]:
        """All of them, from one moment. A list whose pages expire is begun anew; half a list is
        never answered.
        """
        for _ in range(RESTARTS):
            try:
                return [
                    pod for page in self._pages("pods", selector) for pod in page.get("items") or ()
                ]
            except Expired:
                continue
        raise ProviderError(
            f"The list of pods in {self.place} expires before it is read, again and again. It is "
            "asked again by itself."
        )

    def find_version(self, selector: str) -> str:
        """Where a watch may begin that misses nothing from now on."""
        page = self._request(
            "GET",
            "pods",
            ApiCall("list", "pods", place=self.place),
            query={"labelSelector": selector, "limit": 1},
        )
        return str((page.get("metadata") or {}).get("resourceVersion") or "")

    def watch_pods(self, selector: str, version: str, seconds: int, patience: float) -> Stream:
        query = {
            "labelSelector": selector, "resourceVersion": version, "watch": "true",
            "allowWatchBookmarks": "true", "timeoutSeconds": seconds,
        }  # fmt: skip
        call = ApiCall("watch", "pods", place=self.place)
        response = self.send(
            "GET", self._path("pods"), call, query=query, patience=patience, is_guarded=False
        )
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
        metadata = {
            **change.get("metadata", {}),
            "resourceVersion": secret["metadata"].get("resourceVersion"),
        }
        call = ApiCall("patch", "secrets", name_of(secret), self.place)
        return self._request(
            "PATCH",
            f"secrets/{name_of(secret)}",
            call,
            body={**change, "metadata": metadata},
            content=MERGE,
        )

    def delete_secret(self, secret: Object) -> None:
        self._delete("secrets", secret, None)

    # -- around them

    def check_namespace(self) -> str:
        """Its uid; empty where we may not ask. Raises NamespaceGone."""
        call = ApiCall(
            "get",
            "namespaces",
            self.namespace,
            f"namespace {self.namespace} in {self.connection.words}",
        )
        try:
            found = parse(self.send("GET", f"/api/v1/namespaces/{quote(self.namespace)}", call))
        except Unauthorised:
            return ""
        return str((found.get("metadata") or {}).get("uid") or "")

    def may(self, verb: str, resource: str) -> bool | None:
        """Whether our account may do this here; None: the server does not say."""
        group, _, name = resource.rpartition("/")
        attributes = {"namespace": self.namespace, "verb": verb, "resource": name, "group": group}
        body = {
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SelfSubjectAccessReview",
            "spec": {"resourceAttributes": attributes},
        }
        call = ApiCall("create", "selfsubjectaccessreviews", place=self.place)
        try:
            found = parse(
                self.send(
                    "POST",
                    "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews",
                    call,
                    body=body,
                )
            )
        except (Misconfigured, NotFoundOutside, Unauthorised):
            return None
        return bool((found.get("status") or {}).get("allowed"))

    # -- requests

    def _path(self, rest: str) -> str:
        return f"/api/v1/namespaces/{quote(self.namespace)}/{rest}"

    def _get(self, resource: str, name: str) -> Object | None:
        try:
            return self._request(
                "GET", f"{resource}/{quote(name)}", ApiCall("get", resource, name, self.place)
            )
        except NotFoundOutside:
            return None

    def _create(self, resource: str, manifest: Object, *, is_dry: bool) -> Object:
        query: dict[str, Any] = {"fieldValidation": "Strict", "fieldManager": "berth"}
        if is_dry:
            query["dryRun"] = "All"
        return self._request(
            "POST",
            resource,
            ApiCall("create", resource, name_of(manifest), self.place),
            query=query,
            body=manifest,
        )

    def _delete(self, resource: str, found: Object, grace: int | None) -> None:
        """This object and no other of its name. One that is not there any more, or another by
        now, is gone.
        """
        body: dict[str, Any] = {
            "apiVersion": "v1",
            "kind": "DeleteOptions",
            "preconditions": {"uid": uid_of(found)},
        }
        if grace is not None:
            body["gracePeriodSeconds"] = grace
        try:
            self._request(
                "DELETE",
                f"{resource}/{quote(name_of(found))}",
                ApiCall("delete", resource, name_of(found), self.place),
                body=body,
            )
        except (NotFoundOutside, ObjectChanged):
            return

    def _pages(self, resource: str, selector: str) -> Iterator[Mapping[str, Any]]:
        query: dict[str, Any] = {"labelSelector": selector, "limit": PAGE}
        while True:
            page = self._request(
                "GET", resource, ApiCall("list", resource, place=self.place), query=query
            )
            if not str(page.get("kind")).endswith("List"):
                # Some other server with some JSON: to take it for an empty list would call all
                # pods gone.
                raise Misconfigured(
                    f"The answer is no list of {resource} ({self.place}). See that the context "
                    "names an API server."
                )
            yield page
            token = (page.get("metadata") or {}).get("continue")
            if not token:
                return
            query = {**query, "continue": token}

    def _request(
        self,
        method: str,
        rest: str,
        call: ApiCall,
        *,
        query: Mapping[str, Any] | None = None,
        body: Any = None,
        content: str = "application/json",
    ) -> Mapping[str, Any]:
        return parse(
            self.send(method, self._path(rest), call, query=query, body=body, content=content)
        )


def api_for(options: Mapping[str, Any]) -> Api:
    """Of a pool's options. Raises Misconfigured, whose words say which file lacks what."""
    connection = open_connection(str(options.get("context") or ""))
    return Api(connection, str(options.get("namespace") or connection.namespace))


__all__ = ["Api", "api_for", "forget"]
