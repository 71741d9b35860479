"""The API server's behaviour that a pod provider depends on: the same requests to any server,
answered with facts to compare.
"""

import base64
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

from tests.kubernetes_cluster.clusters import MERGE, STRATEGIC, Thing
from tests.kubernetes_cluster.namespace import Space

PROBES: list[Callable[[Space], Any]] = []
JSON_PATCH = "application/json-patch+json"
NO_NAMES = ("uid", "resourceVersion", "creationTimestamp", "deletionTimestamp")


def probe(function: Callable[[Space], Any]) -> Callable[[Space], Any]:
    PROBES.append(function)
    return function


def told(answer: tuple[int, Any], space: Space, *, words: bool = False) -> Any:
    """Code, reason and the causes by field; with the messages if people read them."""
    code, body = answer
    if code < 400 or not isinstance(body, dict):
        return code
    details = body.get("details") or {}
    causes = sorted(
        {(cause.get("field", ""), cause.get("reason", "")) for cause in details.get("causes") or []}
    )
    said = body["message"].replace(space.name, "NAMESPACE") if words else ""
    return code, body.get("reason"), details.get("name", ""), details.get("kind", ""), causes, said


def post_pod(
    space: Space,
    query: str = "",
    *,
    metadata: Thing | None = None,
    container: Thing | None = None,
    **spec: Any,
) -> tuple[int, Any]:
    given = {"name": "c", "image": "x", **(container or {})}
    body = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "p", **(metadata or {})},
        "spec": {"containers": [given], **spec},
    }
    return space.world.ask("POST", f"{space.path}/pods{query}", body)


def version_of(space: Space) -> str:
    return str(space.world.must("GET", f"{space.path}/pods")["metadata"]["resourceVersion"])


def watch(space: Space, since: str, query: str = "") -> list[Thing]:
    found = space.world.must(
        "GET", f"{space.path}/pods?watch=1&timeoutSeconds=1&resourceVersion={since}{query}"
    )
    return list(found)


def words_of(events: list[Thing]) -> list[tuple[str, str]]:
    return [
        (event["type"], event["object"].get("metadata", {}).get("name", "")) for event in events
    ]


# -- creating --------------------------------------------------------------------------------------


@probe
def what_is_added_to_a_pod(space: Space) -> Any:
    env = [{"name": "A", "value": "1"}]
    resources = {"limits": {"cpu": "1", "memory": "1Gi"}}
    volumes = [{"name": "t", "secret": {"secretName": "p"}}, {"name": "s", "emptyDir": {}}]
    _, pod = post_pod(
        space,
        container={"env": env, "resources": resources},
        restartPolicy="Never",
        volumes=volumes,
    )
    return (
        pod["spec"],
        pod["status"],
        sorted(name for name in pod["metadata"] if name != "managedFields"),
    )


@probe
def what_is_refused(space: Space) -> Any:
    bad: dict[str, Any] = {
        "no image": {"container": {"image": ""}},
        "image with a blank": {"container": {"image": " x"}},
        "no containers": {"containers": []},
        "bad name": {"metadata": {"name": "Bad_Name"}},
        "bad label": {"metadata": {"labels": {"a": "b c"}}},
        "bad label key": {"metadata": {"labels": {"a b": "c"}}},
        "label that is a number": {"metadata": {"labels": {"a": 1}}},
        "long annotations": {"metadata": {"annotations": {"a": "x" * 300_000}}},
        "container's name": {"container": {"name": "Not_Good"}},
        "policy": {"restartPolicy": "Sometimes"},
        "more asked than allowed": {
            "container": {"resources": {"requests": {"cpu": "2"}, "limits": {"cpu": "1"}}}
        },
        "quantity": {"container": {"resources": {"requests": {"cpu": "much"}}}},
        "toleration": {"tolerations": [{"key": "a", "operator": "Exists", "effect": "Never"}]},
        "toleration's operator": {"tolerations": [{"key": "a", "operator": "Perhaps"}]},
        "node selector": {"nodeSelector": {"a": "b c"}},
        "mount of nothing": {"container": {"volumeMounts": [{"name": "none", "mountPath": "/x"}]}},
        "variable without a name": {"container": {"env": [{"name": "", "value": "x"}]}},
        "variable that is a number": {"container": {"env": [{"name": "A", "value": 1}]}},
        "service account": {"serviceAccountName": "Bad_One"},
        "two at once": {"restartPolicy": "Sometimes", "container": {"image": ""}},
        "grace": {"terminationGracePeriodSeconds": -1},
    }
    return {name: told(post_pod(space, "?dryRun=All", **case), space) for name, case in bad.items()}


@probe
def a_try_alone_stores_nothing(space: Space) -> Any:
    code, answer = post_pod(space, "?dryRun=All")
    strict = told(post_pod(space, "?dryRun=All&fieldValidation=Strict", colour="red"), space)
    loose = post_pod(space, "?dryRun=All", colour="red")[0]
    post_pod(space)
    return (
        code,
        answer["status"]["phase"],
        strict,
        loose,
        told(post_pod(space, "?dryRun=All"), space),
        space.names(),
    )


@probe
def a_name_is_taken_once(space: Space) -> Any:
    post_pod(space)
    made = post_pod(space, metadata={"name": "", "generateName": "g-"})[1]["metadata"]["name"]
    return told(post_pod(space), space, words=True), made.startswith("g-"), len(made)


@probe
def what_is_not_there(space: Space) -> Any:
    ask = space.world.ask
    nowhere = Space(space.world, "none-of-ours")
    return [
        told(ask("GET", f"{space.path}/pods/none"), space, words=True),
        told(ask("DELETE", f"{space.path}/pods/none"), space, words=True),
        told(ask("PATCH", f"{space.path}/pods/none", {}, content=MERGE), space, words=True),
        told(post_pod(nowhere), space, words=True),
        told(ask("GET", f"{nowhere.path}/pods"), space),
        told(ask("GET", f"/api/v1/namespaces/{nowhere.name}"), space, words=True),
    ]


@probe
def a_namespace_that_ends_takes_nothing_new(space: Space) -> Any:
    space.create_pod("a")
    space.end()
    code, answer = post_pod(space)
    status = space.world.must("GET", f"/api/v1/namespaces/{space.name}")["status"]["phase"]
    return told((code, answer), space, words=True), status, space.names()


# -- changing --------------------------------------------------------------------------------------


@probe
def patches(space: Space) -> Any:
    space.create_pod("p", annotations={"keep": "1", "drop": "1"})
    ask, path = space.world.ask, f"{space.path}/pods/p"
    facts: list[Any] = []
    for content in (MERGE, STRATEGIC):
        before = space.pod("p")["metadata"]["resourceVersion"]
        after = ask(
            "PATCH",
            path,
            {"metadata": {"annotations": {"drop": None, "new": "2"}}},
            content=content,
        )[1]["metadata"]
        facts += [after["annotations"], after["resourceVersion"] != before]
    steps: list[Any] = [
        {"op": "test", "path": "/metadata/annotations/new", "value": "2"},
        {"op": "remove", "path": "/metadata/annotations/new"},
    ]
    facts.append(ask("PATCH", path, steps, content=JSON_PATCH)[1]["metadata"]["annotations"])
    facts.append(ask("PATCH", path, steps, content=JSON_PATCH)[0])
    facts.append(
        ask(
            "PATCH",
            path,
            [{"op": "remove", "path": "/metadata/annotations/none"}],
            content=JSON_PATCH,
        )[0]
    )
    facts.append(
        ask(
            "PATCH",
            path,
            {"spec": {"containers": [{"name": "c", "image": "y"}]}},
            content=STRATEGIC,
        )[0]
    )
    facts.append(
        told(
            ask("PATCH", path, {"spec": {"terminationGracePeriodSeconds": 5}}, content=MERGE), space
        )
    )
    facts.append(told(ask("PATCH", path, {"spec": {"nodeName": "n1"}}, content=MERGE), space))
    return facts


@probe
def versions_and_uids_are_asked_for(space: Space) -> Any:
    old = space.create_pod("p")
    ask, path = space.world.ask, f"{space.path}/pods/p"
    space.patch("pods", "p", {"metadata": {"labels": {"x": "1"}}})
    stale = {
        "metadata": {"resourceVersion": old["metadata"]["resourceVersion"], "labels": {"x": "2"}}
    }
    other = {"metadata": {"uid": "11111111-1111-1111-1111-111111111111", "labels": {"x": "2"}}}
    right = {"metadata": {"uid": old["metadata"]["uid"], "labels": {"x": "3"}}}
    return [
        told(ask("PUT", path, old), space, words=True),
        told(ask("PATCH", path, stale, content=MERGE), space, words=True),
        told(ask("PATCH", path, other, content=MERGE), space),
        told(ask("PATCH", path, right, content=MERGE), space),
    ]


@probe
def the_status_is_a_part_of_its_own(space: Space) -> Any:
    space.create_pod("p", node="n1")
    ready = space.run("p")["status"]
    ask = space.world.ask
    aside = ask("PATCH", f"{space.path}/pods/p", {"status": {"phase": "Failed"}}, content=MERGE)[1][
        "status"
    ]["phase"]
    more = {
        "metadata": {"labels": {"via": "status"}, "finalizers": ["x.io/f"]},
        "spec": {"nodeName": "zz"},
    }
    changed = space.patch("pods", "p", more, part="status")
    space.patch("pods", "p", {"metadata": {"finalizers": None}}, content=MERGE)
    moved = space.patch("pods", "p", {"status": {"podIP": "10.1.1.9"}}, part="status")["status"]
    bad = ask(
        "PATCH",
        f"{space.path}/pods/p/status",
        {"status": {"podIP": "x", "podIPs": [{"ip": "x"}]}},
        content=MERGE,
    )
    conditions = sorted(condition["type"] for condition in ready["conditions"])
    meta = changed["metadata"]
    facts = [
        ready["phase"],
        ready["podIPs"],
        conditions,
        aside,
        meta["labels"],
        meta["finalizers"],
        changed["spec"]["nodeName"],
    ]
    back = [space.set_phase("p", phase)["status"]["phase"] for phase in ("Succeeded", "Running")]
    return [*facts, moved["podIP"], told(bad, space), back]


@probe
def binding(space: Space) -> Any:
    space.create_pod("p")
    space.bind("p")
    pod = space.pod("p")
    body = {
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": {"name": "p"},
        "target": {"kind": "Node", "name": "n2"},
    }
    again = space.world.ask("POST", f"{space.path}/pods/p/binding", body)
    return (
        pod["spec"]["nodeName"],
        [(c["type"], c["status"]) for c in pod["status"]["conditions"]],
        told(again, space),
    )


@probe
def secrets(space: Space) -> Any:
    ask, path = space.world.ask, f"{space.path}/secrets"
    made = ask(
        "POST", path, {"metadata": {"name": "s"}, "stringData": {"a": "x"}, "data": {"b": "eQ=="}}
    )[1]
    patched = ask(
        "PATCH",
        f"{path}/s",
        {"data": {"a": base64.b64encode(b"z").decode(), "b": None}},
        content=MERGE,
    )[1]
    facts = [made["data"], made["type"], "stringData" in made, patched["data"]]
    facts.append(told(ask("POST", path, {"metadata": {"name": "s"}}), space, words=True))
    facts.append(
        told(ask("POST", path, {"metadata": {"name": "t"}, "data": {"a": "not base64!"}}), space)
    )
    facts.append(
        told(ask("POST", path, {"metadata": {"name": "t"}, "stringData": {"a/b": "x"}}), space)
    )
    facts.append(told(ask("PATCH", f"{path}/s", {"type": "other"}, content=MERGE), space))
    other = {"preconditions": {"uid": "11111111-1111-1111-1111-111111111111"}}
    facts.append(told(ask("DELETE", f"{path}/s", other), space))
    ended = ask("DELETE", f"{path}/s", {"preconditions": {"uid": made["metadata"]["uid"]}})
    return [
        *facts,
        ended[0],
        ended[1]["kind"],
        ended[1]["status"],
        ended[1]["details"]["name"],
        space.names("secrets"),
    ]


# -- deleting --------------------------------------------------------------------------------------


def ahead(pod: Thing) -> float:
    """Minutes until it is due, roughly: a busy machine takes its time."""
    due = datetime.strptime(pod["metadata"]["deletionTimestamp"], "%Y-%m-%dT%H:%M:%SZ").replace(
        tzinfo=UTC
    )
    return round((due - datetime.now(UTC)).total_seconds() / 60)


@probe
def deleting_with_grace(space: Space) -> Any:
    space.create_pod("p", node="n1", grace=60)
    space.run("p")
    code, first = space.world.ask("DELETE", f"{space.path}/pods/p", {})
    facts = [
        code,
        first["kind"],
        ahead(first),
        first["metadata"]["deletionGracePeriodSeconds"],
        first["status"]["phase"],
    ]
    longer = space.world.ask("DELETE", f"{space.path}/pods/p", {"gracePeriodSeconds": 90})[1][
        "metadata"
    ]["deletionGracePeriodSeconds"]
    shorter = space.world.ask("DELETE", f"{space.path}/pods/p", {"gracePeriodSeconds": 20})[1][
        "metadata"
    ]["deletionGracePeriodSeconds"]
    change = {"metadata": {"finalizers": ["x.io/f"]}}
    late = told(space.world.ask("PATCH", f"{space.path}/pods/p", change, content=MERGE), space)
    label = space.patch("pods", "p", {"metadata": {"labels": {"still": "there"}}})["metadata"][
        "labels"
    ]
    since = version_of(space)
    ended = space.world.ask("DELETE", f"{space.path}/pods/p", {"gracePeriodSeconds": 0})
    events = watch(space, since)
    graces = [event["object"]["metadata"]["deletionGracePeriodSeconds"] for event in events]
    facts += [longer, shorter, late, label, ended[0], ended[1]["kind"], words_of(events), graces]
    return [*facts, told(space.world.ask("DELETE", f"{space.path}/pods/p", {}), space)]


@probe
def deleting_at_once(space: Space) -> Any:
    facts: list[Any] = []
    space.create_pod("nowhere")
    since = version_of(space)
    code, answer = space.world.ask("DELETE", f"{space.path}/pods/nowhere", {})
    facts += [
        code,
        answer["kind"],
        answer["metadata"]["deletionGracePeriodSeconds"],
        space.names(),
        words_of(watch(space, since)),
    ]
    for phase in ("Succeeded", "Failed", "Pending"):
        name = phase.lower()
        space.create_pod(name, node="n1")
        space.set_phase(name, phase)
        space.delete(name)
        facts.append((phase, name in space.names()))
    return facts


@probe
def deleting_with_preconditions(space: Space) -> Any:
    pod = space.create_pod("p")
    path, uid = f"{space.path}/pods/p", pod["metadata"]["uid"]
    space.patch("pods", "p", {"metadata": {"labels": {"x": "1"}}})
    wrong = space.world.ask(
        "DELETE", path, {"preconditions": {"uid": "11111111-1111-1111-1111-111111111111"}}
    )
    moved = space.world.ask(
        "DELETE",
        path,
        {"preconditions": {"uid": uid, "resourceVersion": pod["metadata"]["resourceVersion"]}},
    )
    right = space.world.ask("DELETE", path, {"preconditions": {"uid": uid}})
    again = space.world.ask("DELETE", path, {"preconditions": {"uid": uid}})
    said = wrong[1]["message"].replace(uid, "UID")
    where = moved[1]["message"].partition("(")[0]
    return (
        told(wrong, space),
        said,
        told(moved, space),
        where,
        right[0],
        told(again, space),
        space.names(),
    )


@probe
def finalizers(space: Space) -> Any:
    space.create_pod("p", finalizers=["x.io/f"])
    code = space.delete("p", grace=0)
    marked = space.pod("p")["metadata"]
    since = version_of(space)
    space.patch("pods", "p", {"metadata": {"finalizers": None}}, content=MERGE)
    return code, marked["deletionGracePeriodSeconds"], words_of(watch(space, since)), space.names()


@probe
def eviction(space: Space) -> Any:
    space.create_pod("p", node="n1")
    space.run("p")
    space.create_pod("pending")
    codes = [space.evict("p"), space.evict("pending"), space.evict("none")]
    pod = space.pod("p")
    conditions = sorted(
        (c["type"], c.get("reason", ""))
        for c in pod["status"]["conditions"]
        if c["type"] == "DisruptionTarget"
    )
    return codes, space.names(), pod["metadata"]["deletionGracePeriodSeconds"], conditions


@probe
def a_lost_node(space: Space) -> Any:
    space.create_pod("p", node="n1")
    space.run("p")
    space.lose_node("p")
    pod = space.pod("p")
    return (
        pod["status"]["phase"],
        pod["status"]["reason"],
        "deletionTimestamp" in pod["metadata"],
        space.names(),
    )


# -- lists and watches -----------------------------------------------------------------------------


@probe
def pages_show_one_moment(space: Space) -> Any:
    for number in range(5):
        space.create_pod(f"p{number}", labels={"page": "1"})
    ask, path = space.world.ask, f"{space.path}/pods?limit=2"
    first = ask("GET", path)[1]
    space.create_pod("p2b")
    space.delete("p3", grace=0)
    page, names, versions = first, [], set()
    while True:
        names += [pod["metadata"]["name"] for pod in page["items"]]
        versions.add(page["metadata"]["resourceVersion"])
        if not page["metadata"].get("continue"):
            break
        page = ask("GET", f"{path}&continue={page['metadata']['continue']}")[1]
    chosen = ask("GET", f"{path}&labelSelector=page%3D1")[1]["metadata"]
    bad = told(ask("GET", f"{path}&continue=x"), space)
    kinds = first["kind"], "kind" in first["items"][0]
    return (
        names,
        len(versions),
        first["metadata"]["remainingItemCount"],
        "remainingItemCount" in chosen,
        bad,
        kinds,
    )


@probe
def selectors(space: Space) -> Any:
    space.create_pod("a", labels={"set": "s", "pool": "p1"})
    space.create_pod("b", labels={"set": "s", "pool": "p2"})
    space.set_phase("a", "Running", podIP="10.9.9.9")

    def names(query: str) -> Any:
        code, found = space.world.ask("GET", f"{space.path}/pods?{query}")
        return (
            [pod["metadata"]["name"] for pod in found["items"]]
            if code == 200
            else told((code, found), space)
        )

    queries = (
        "labelSelector=set%3Ds,pool+in+(p1,p3),!zzz",
        "labelSelector=set%3Ds,pool!%3Dp1",
        "labelSelector=pool",
        "labelSelector=a%3D%3D!",
    )
    fields = ("status.phase%3DRunning", "spec.nodeName%3D", "metadata.name%3Db", "metadata.uid%3D1")
    return [names(query) for query in queries] + [
        names(f"fieldSelector={query}") for query in fields
    ]


@probe
def a_watch_goes_on_where_it_ended(space: Space) -> Any:
    since = version_of(space)
    space.create_pod("w", node="n1")
    space.run("w")
    space.delete("w", grace=5)
    space.delete("w", grace=0)
    events = watch(space, since)
    versions = [event["object"]["metadata"]["resourceVersion"] for event in events]
    rest = watch(space, versions[1])
    return (
        words_of(events),
        words_of(rest),
        versions == sorted(versions, key=int),
        events[-1]["object"]["kind"],
    )


@probe
def a_watch_of_some(space: Space) -> Any:
    space.create_pod("w")
    since = version_of(space)
    space.patch("pods", "w", {"metadata": {"labels": {"in": "1"}}})
    space.patch("pods", "w", {"metadata": {"labels": {"in": None}}})
    space.delete("w", grace=0)
    return words_of(watch(space, since, "&labelSelector=in%3D1"))


@probe
def a_watch_from_nothing_begins_with_all(space: Space) -> Any:
    space.create_pod("a")
    space.create_pod("b")
    path = f"{space.path}/pods?watch=1&timeoutSeconds=1"
    plain = words_of(space.world.must("GET", path))
    more = "&sendInitialEvents=true&allowWatchBookmarks=true&resourceVersionMatch=NotOlderThan"
    whole = space.world.must("GET", path + more)
    mark = next(
        event["object"]["metadata"]["annotations"] for event in whole if event["type"] == "BOOKMARK"
    )
    return sorted(plain), sorted(words_of(whole[:2])), mark


@probe
def bookmarks_come_only_if_something_was_written_since(space: Space) -> Any:
    def marks(since: str) -> list[str]:
        path = f"{space.path}/pods?watch=1&timeoutSeconds=3&allowWatchBookmarks=true&resourceVersion={since}"  # noqa: E501
        events = space.world.must("GET", path)
        return sorted({event["type"] for event in events})

    since = version_of(space)
    space.create_pod("p")
    return marks(since)


@probe
def what_is_too_new(space: Space) -> Any:
    ask = space.world.ask
    future = told(
        ask("GET", f"{space.path}/pods?resourceVersion=99999999&resourceVersionMatch=NotOlderThan"),
        space,
    )
    return future[:2]


# -- rights ----------------------------------------------------------------------------------------


@probe
def rights(space: Space) -> Any:
    def ask(method: str, what: str, body: Any = None, *, user: str = "limited", **more: Any) -> Any:
        return told(
            space.world.ask(method, f"{space.path}/{what}", body, user=user, **more),
            space,
            words=True,
        )

    def review(verb: str) -> Any:
        attributes = {"namespace": space.name, "verb": verb, "resource": "pods"}
        path = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
        body = {
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SelfSubjectAccessReview",
            "spec": {"resourceAttributes": attributes},
        }
        return space.world.must("POST", path, body, user="limited")["status"]["allowed"]

    before = ask("GET", "pods")
    space.grant(
        "limited",
        {"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "list", "watch", "create"]},
    )
    space.until(lambda: review("list"))
    created = ask(
        "POST",
        "pods",
        {"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "image": "x"}]}},
    )
    facts = [
        before,
        created,
        ask("DELETE", "pods/p"),
        ask("GET", "pods/p"),
        ask("GET", "secrets"),
        ask("PATCH", "pods/p/status", {}, content=MERGE),
    ]
    return [
        *facts,
        review("delete"),
        space.world.ask("GET", f"{space.path}/pods", user="nobody")[0],
    ]


@probe
def once_the_past_is_forgotten(space: Space) -> Any:
    """Last: it ends every connection."""
    for number in range(3):
        space.create_pod(f"p{number}")
    old = version_of(space)
    page = space.world.ask("GET", f"{space.path}/pods?limit=1")[1]["metadata"]["continue"]
    space.patch("pods", "p0", {"metadata": {"labels": {"x": "1"}}})
    space.world.compact()
    kept = words_of(watch(space, old))
    space.world.expire()
    events = watch(space, old)
    code, answer = space.world.ask("GET", f"{space.path}/pods?limit=1&continue={page}")
    fresh = space.world.must(
        "GET", f"{space.path}/pods?limit=1&continue={answer['metadata']['continue']}"
    )
    exact = told(
        space.world.ask(
            "GET", f"{space.path}/pods?resourceVersion={old}&resourceVersionMatch=Exact"
        ),
        space,
    )
    error = events[0]["object"]
    names = [pod["metadata"]["name"] for pod in fresh["items"]]
    return (
        kept,
        events[0]["type"],
        error["code"],
        error["reason"],
        (code, answer["reason"]),
        names,
        exact[:2],
        space.names(),
    )
