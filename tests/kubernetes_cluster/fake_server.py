"""A small Kubernetes API server in memory that behaves like the real one in all that a pod
provider notices.

tests/kubernetes_cluster/test_fake_server.py sends both servers the same requests and compares.
"""

import base64
import copy
import json
import secrets
import time
from collections.abc import Iterator
from functools import partial
from typing import Any

from tests.kubernetes_cluster.fake_checks import (
    check_metadata,
    check_pod,
    complete_pod,
    complete_secret,
    decode,
)
from tests.kubernetes_cluster.fake_objects import (
    Refused,
    Thing,
    has_fields,
    has_labels,
    invalid,
    json_patch,
    merge,
    missing,
    parse_fields,
    parse_labels,
    strategic,
)
from tests.kubernetes_cluster.fake_rights import User, may
from tests.kubernetes_cluster.fake_store import RESOURCES, Key, Selects, Store, stamp
from tests.kubernetes_cluster.faults import Faults, met, split, verb_of
from tests.kubernetes_cluster.http_front import Answer, Front, Request

MARK_EVERY = 60.0  # seconds between bookmarks of a watch
MARK_AT_END = 2.0  # and before its end
BEAT = 0.25  # seconds after which a watch looks whether its reader is still there
FUTURE = 3.0  # seconds for which a version that is not there yet is waited for
VERSION = {
    "major": "1",
    "minor": "36",
    "gitVersion": "v1.36.3-fake",
    "gitCommit": "",
    "gitTreeState": "",
    "goVersion": "",
    "compiler": "",
}
VERSION |= {"buildDate": "2026-01-01T00:00:00Z", "platform": "linux/amd64"}


class FakeServer:
    def __init__(self, users: dict[str, User]) -> None:
        self.users = users  # by token
        self.store, self.faults = Store(), Faults()
        self.front = Front(self.answer)
        self.seen: list[tuple[str, str]] = []  # verb, plural: what was asked for

    # -- one request -------------------------------------------------------------------------------
    def answer(self, request: Request) -> Answer:
        return met(self.faults, request, self.answer_past_faults, self.front)

    def answer_past_faults(self, request: Request) -> Answer:
        try:
            return self.route(request)
        except Refused as refused:
            return Answer(refused.code, json.dumps(refused.status()).encode())

    def route(self, request: Request) -> Answer:
        user = self.users.get(request.headers.get("authorization", "").removeprefix("Bearer "))
        if user is None:
            raise Refused(401, "Unauthorized")
        if request.path == "/version":
            return said(VERSION)
        if request.path in ("/healthz", "/readyz", "/livez"):
            return Answer(200, b"ok", {"Content-Type": "text/plain"})
        group, namespace, plural, name, part = split(request.path)
        if (
            group == "authorization.k8s.io"
            and plural == "selfsubjectaccessreviews"
            and request.method == "POST"
        ):
            return self.review(user, request.json())
        resource = RESOURCES.get(plural)
        if resource is None or resource.group != group:
            raise Refused(404, "the server could not find the requested resource")
        verb = verb_of(request.method, name, request.query)
        self.seen.append((verb, plural))
        with self.store.news:
            may(
                self.store,
                user,
                verb,
                group,
                namespace,
                f"{plural}/{part}" if part else plural,
                name,
            )
        if resource.is_namespaced and not namespace and (name or request.method != "GET"):
            raise Refused(405, "the server does not allow this method on the requested resource")
        if not name:
            return self.on_all(request, verb, plural, namespace)
        with self.store.news:
            return self.on_one(
                request, (plural, namespace if resource.is_namespaced else "", name), part
            )

    def review(self, user: User, body: Thing) -> Answer:
        asked = body["spec"]["resourceAttributes"]
        plural = asked.get("resource", "") + (
            f"/{asked['subresource']}" if asked.get("subresource") else ""
        )
        try:
            with self.store.news:
                may(
                    self.store,
                    user,
                    asked.get("verb", ""),
                    asked.get("group", ""),
                    asked.get("namespace", ""),
                    plural,
                    asked.get("name", ""),
                )
            status: Thing = {"allowed": True}
        except Refused:
            status = {"allowed": False}
        return said(
            {
                **body,
                "kind": "SelfSubjectAccessReview",
                "apiVersion": "authorization.k8s.io/v1",
                "status": status,
            },
            201,
        )

    # -- on a collection ---------------------------------------------------------------------------
    def on_all(self, request: Request, verb: str, plural: str, namespace: str) -> Answer:
        if verb == "watch":
            return self.watch(request, plural, namespace)
        if verb == "list":
            return self.list_things(request, plural, namespace)
        with self.store.news:
            if verb == "create":
                return self.create(request, plural, namespace)
            if verb == "deletecollection":
                options, selects = delete_options(request), self.selects(request, plural, namespace)
                found = [
                    (key, thing)
                    for key, thing in sorted(self.store.things.items())
                    if key[0] == plural and selects(thing)
                ]
                for key, _ in found:
                    self.store.delete(key, options)
                return said(
                    {
                        "kind": f"{RESOURCES[plural].kind}List",
                        "apiVersion": RESOURCES[plural].version,
                        "metadata": {},
                        "items": [t for _, t in found],
                    }
                )
        raise Refused(405, "the server does not allow this method on the requested resource")

    def create(self, request: Request, plural: str, namespace: str) -> Answer:
        resource, thing = RESOURCES[plural], parse(request)
        meta = thing.setdefault("metadata", {})
        decode(resource.kind, thing, is_strict=request.query.get("fieldValidation") == "Strict")
        if meta.get("namespace", namespace) != namespace:
            raise Refused(
                400,
                (
                    "the namespace of the provided object does not match the namespace sent "
                    "on the request"
                ),
            )
        if not meta.get("name") and meta.get("generateName"):
            meta["name"] = meta["generateName"] + "".join(
                secrets.choice("bcdfghjklmnpqrstvwxz2456789") for _ in range(5)
            )
        if not meta.get("name"):
            raise invalid(
                resource.kind,
                "",
                [
                    (
                        "FieldValueRequired",
                        "metadata.name",
                        "Required value: name or generateName is required",
                    )
                ],
            )
        if meta.pop("resourceVersion", None):
            raise Refused(400, "resourceVersion should not be set on objects to be created")
        self.check_namespace(plural, namespace, meta["name"])
        if plural == "pods":
            check_pod(thing)
            complete_pod(thing)
        elif causes := check_metadata(resource.kind, thing):
            raise invalid(resource.kind, meta["name"], causes)
        if plural == "secrets":
            complete_secret(thing)
        key: Key = (plural, namespace if resource.is_namespaced else "", meta["name"])
        if key in self.store.things:
            raise Refused(
                409,
                f'{plural} "{key[2]}" already exists',
                reason="AlreadyExists",
                details={"name": key[2], "kind": plural},
            )
        if request.query.get("dryRun"):
            return said(
                {"kind": resource.kind, "apiVersion": resource.version, **dry(thing, namespace)},
                201,
            )
        return said(self.store.create(key, thing), 201)

    def check_namespace(self, plural: str, namespace: str, name: str) -> None:
        if not namespace:
            return
        where = self.store.things.get(("namespaces", "", namespace))
        if where is None:
            raise missing("namespaces", namespace)
        if where["status"]["phase"] == "Terminating":
            why = (
                f"unable to create new content in namespace {namespace} because it is "
                "being terminated"
            )
            cause = {
                "reason": "NamespaceTerminating",
                "message": f"namespace {namespace} is being terminated",
                "field": "metadata.namespace",
            }
            details = {"name": name, "kind": plural, "causes": [cause]}
            raise Refused(403, f'{plural} "{name}" is forbidden: {why}', details=details)

    def selects(self, request: Request, plural: str, namespace: str) -> Selects:
        labels = parse_labels(request.query.get("labelSelector", ""))
        fields = parse_fields(request.query.get("fieldSelector", ""), plural)

        def fits(thing: Thing) -> bool:
            return (
                namespace in ("", thing["metadata"].get("namespace"))
                and has_labels(labels, thing)
                and has_fields(fields, thing)
            )

        return fits

    def list_things(self, request: Request, plural: str, namespace: str) -> Answer:
        query, selects = request.query, self.selects(request, plural, namespace)
        after: tuple[str, str] = ("", "")
        wanted = int(query.get("resourceVersion") or 0)
        with self.store.news:
            self.wait_version(wanted)
            version = wanted if query.get("resourceVersionMatch") == "Exact" else self.store.version
            if token := query.get("continue"):
                version, after = self.read_continue(token)
            there = self.store.at(version)
        places = sorted(
            (key for key, thing in there.items() if key[0] == plural and selects(thing)),
            key=lambda key: key[1:],
        )
        places = [key for key in places if key[1:] > after]
        meta: Thing = {"resourceVersion": str(version)}
        limit = int(query.get("limit") or 0)
        if limit and len(places) > limit:
            if not query.get("labelSelector") and not query.get("fieldSelector"):
                meta["remainingItemCount"] = len(places) - limit
            places = places[:limit]
            meta["continue"] = write_continue(version, places[-1])
        items = [
            {
                name: value
                for name, value in there[key].items()
                if name not in ("kind", "apiVersion")
            }
            for key in places
        ]
        return said(
            {
                "kind": f"{RESOURCES[plural].kind}List",
                "apiVersion": RESOURCES[plural].version,
                "metadata": meta,
                "items": items,
            }
        )

    def wait_version(self, version: int) -> None:
        if not self.store.news.wait_for(lambda: self.store.version >= version, FUTURE):
            cause = {"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}
            details = {"retryAfterSeconds": 1, "causes": [cause]}
            raise Refused(
                504,
                f"Too large resource version: {version}, current: {self.store.version}",
                details=details,
            )

    def read_continue(self, token: str) -> tuple[int, tuple[str, str]]:
        try:
            version, namespace, name = json.loads(base64.urlsafe_b64decode(token))
        except ValueError:
            raise Refused(
                400, "continue key is not valid: illegal base64 data at input byte 0"
            ) from None
        if 0 < version < self.store.floor:
            fresh = write_continue(-1, ("", namespace, name))
            words = (
                "The provided continue parameter is too old to display a consistent list result."
            )
            raise Refused(410, words, more={"continue": fresh})
        return (self.store.version if version < 0 else version), (namespace, name)

    # -- watches -----------------------------------------------------------------------------------
    def watch(self, request: Request, plural: str, namespace: str) -> Answer:
        selects = self.selects(request, plural, namespace)
        since = int(request.query.get("resourceVersion") or 0)
        with self.store.news:
            if since and since < self.store.floor:
                error = Refused(410, f"too old resource version: {since} ({self.store.floor})")
                return Answer(200, stream=iter([event("ERROR", error.status())]))
            if since > self.store.version:
                self.wait_version(since)
        return Answer(200, stream=self.follow(request.query, plural, selects, since))

    def follow(
        self, query: dict[str, str], plural: str, selects: Selects, since: int
    ) -> Iterator[bytes]:
        end = time.monotonic() + float(query.get("timeoutSeconds") or 1800)
        is_marked = query.get("allowWatchBookmarks") in ("true", "1")
        is_initial = query.get("sendInitialEvents") in ("true", "1")
        with self.store.news:
            things, start = list(self.store.things.items()), self.store.version
            marked = start
        if is_initial or since == 0:
            yield from (
                event("ADDED", thing)
                for key, thing in sorted(things)
                if key[0] == plural and selects(thing)
            )
            since = start
        if is_initial:
            yield self.mark(plural, since, {"k8s.io/initial-events-end": "true"})
        mark_at = min(time.monotonic() + MARK_EVERY, end - MARK_AT_END)
        while (now := time.monotonic()) < end:
            with self.store.news:
                self.store.news.wait_for(partial(self.store.is_newer, since), min(BEAT, end - now))
                changes, since = list(self.store.since(since)), self.store.version
            for change in changes:
                if change.key[0] == plural and (
                    word := word_for(change.word, change.before, change.now, selects)
                ):
                    yield event(word, change.now)
            if is_marked and time.monotonic() >= mark_at:
                mark_at = time.monotonic() + MARK_EVERY
                if since > marked:
                    marked = since
                    yield self.mark(plural, since, {})
            yield b""

    def mark(self, plural: str, version: int, annotations: dict[str, str]) -> bytes:
        meta: Thing = {
            "resourceVersion": str(version),
            "creationTimestamp": None,
            **({"annotations": annotations} if annotations else {}),
        }
        body: Thing = {
            "kind": RESOURCES[plural].kind,
            "apiVersion": RESOURCES[plural].version,
            "metadata": meta,
        }
        if plural == "pods":
            body |= {"spec": {"containers": None}, "status": {}}
        return event("BOOKMARK", body)

    # -- on one object -----------------------------------------------------------------------------
    def on_one(self, request: Request, key: Key, part: str) -> Answer:
        method, store = request.method, self.store
        if (key[0], part, method) == ("pods", "binding", "POST"):
            return self.bind(key, request.json())
        if (key[0], part, method) == ("pods", "eviction", "POST"):
            return self.evict(key, request.json())
        if (key[0], part, method) == ("namespaces", "finalize", "PUT"):
            return said(store.finalize(key, request.json()))
        if (key[0], part, method) == ("pods", "log", "GET"):
            store.get(key)
            return Answer(204, headers={"Content-Type": "text/plain"})
        if part not in ("", "status"):
            raise Refused(404, "the server could not find the requested resource")
        if method == "GET":
            return said(store.get(key))
        if method == "DELETE":
            left, is_gone = store.delete(key, delete_options(request))
            return said(
                left if key[0] in ("pods", "namespaces") or not is_gone else success(key, left)
            )
        if method == "PUT":
            wanted = parse(request)
            if (wanted.get("metadata") or {}).get("name", key[2]) != key[2]:
                raise Refused(400, "the name of the object does not match the name on the URL")
        elif method == "PATCH":
            wanted = patched(store.get(key), request)
        else:
            raise Refused(405, "the server does not allow this method on the requested resource")
        return said(store.update(key, wanted, part))

    def bind(self, key: Key, body: Thing) -> Answer:
        old = self.store.get(key)
        if old["spec"].get("nodeName"):
            why = f"pod {key[2]} is already assigned to node {old['spec']['nodeName']!r}"
            raise Refused(
                409,
                f'Operation cannot be fulfilled on pods/binding "{key[2]}": {why}',
                details={"name": key[2], "kind": "pods/binding"},
            )
        new = copy.deepcopy(old)
        new["spec"]["nodeName"] = body["target"]["name"]
        scheduled = {"type": "PodScheduled", "status": "True", "lastTransitionTime": stamp()}
        new["status"]["conditions"] = [
            *(c for c in new["status"].get("conditions") or [] if c["type"] != "PodScheduled"),
            scheduled,
        ]
        self.store.write(key, new, "MODIFIED")
        return said(
            {
                "kind": "Status",
                "apiVersion": "v1",
                "metadata": {},
                "status": "Success",
                "code": 201,
            },
            201,
        )

    def evict(self, key: Key, body: Thing) -> Answer:
        """There are no budgets here."""
        old = self.store.get(key)
        if old["spec"].get("nodeName") and old["status"].get("phase") not in (
            "Pending",
            "Succeeded",
            "Failed",
        ):
            new = copy.deepcopy(old)
            why = {
                "type": "DisruptionTarget",
                "status": "True",
                "reason": "EvictionByEvictionAPI",
                "message": "Eviction API: evicting",
            }
            others = [
                c for c in new["status"].get("conditions") or [] if c["type"] != "DisruptionTarget"
            ]
            new["status"]["conditions"] = [*others, {**why, "lastTransitionTime": stamp()}]
            self.store.write(key, new, "MODIFIED")
        self.store.delete(key, body.get("deleteOptions") or {})
        return said(
            {
                "kind": "Status",
                "apiVersion": "v1",
                "metadata": {},
                "status": "Success",
                "code": 201,
            },
            201,
        )


# -- words -----------------------------------------------------------------------------------------


def said(body: Any, status: int = 200) -> Answer:
    return Answer(status, json.dumps(body).encode())


def event(word: str, thing: Thing) -> bytes:
    return json.dumps({"type": word, "object": thing}).encode() + b"\n"


def word_for(word: str, before: Thing | None, now: Thing, selects: Selects) -> str:
    """The type of an event for a watch with a selector: an object that comes into the selection
    is added, and an object that leaves it is deleted.
    """
    was, is_in = before is not None and selects(before), selects(now)
    if word == "DELETED":
        return "DELETED" if was else ""
    if is_in:
        return "MODIFIED" if was else "ADDED"
    return "DELETED" if was else ""


def parse(request: Request) -> Thing:
    try:
        thing = request.json()
    except ValueError:
        raise Refused(
            400, "the object provided is unrecognized: couldn't get version/kind; json parse error"
        ) from None
    if not isinstance(thing, dict):
        raise Refused(400, "the object provided is unrecognized (must be an object)")
    return thing


def patched(old: Thing, request: Request) -> Thing:
    kind, patch = request.headers.get("content-type", ""), request.json()
    bare = copy.deepcopy(old)
    bare["metadata"].pop("resourceVersion", None)  # only a patch that names one asks for it
    if kind.startswith("application/json-patch"):
        return json_patch(bare, patch)
    if kind.startswith("application/merge-patch"):
        return dict(merge(bare, patch))
    if kind.startswith("application/strategic-merge-patch"):
        return dict(strategic(bare, patch))
    raise Refused(
        415,
        (
            "the body of the request was in an unknown format - accepted media types include: "
            f"{kind} is none of them"
        ),
    )


def delete_options(request: Request) -> Thing:
    options = dict(request.json() or {})
    if "gracePeriodSeconds" in request.query:
        options["gracePeriodSeconds"] = int(request.query["gracePeriodSeconds"])
    if "propagationPolicy" in request.query:
        options["propagationPolicy"] = request.query["propagationPolicy"]
    return options


def success(key: Key, left: Thing) -> Thing:
    details = {"name": key[2], "kind": key[0], "uid": left["metadata"]["uid"]}
    return {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Success",
        "details": details,
    }


def dry(thing: Thing, namespace: str) -> Thing:
    meta = {
        **thing["metadata"],
        "uid": "00000000-0000-0000-0000-000000000000",
        "creationTimestamp": stamp(),
    }
    return {**thing, "metadata": {**meta, **({"namespace": namespace} if namespace else {})}}


def write_continue(version: int, key: Key) -> str:
    return base64.urlsafe_b64encode(json.dumps([version, key[1], key[2]]).encode()).decode()
