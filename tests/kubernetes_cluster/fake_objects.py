"""How an API server patches objects, selects among them, and words its refusals."""

import copy
import re
from collections.abc import Sequence
from typing import Any

Thing = dict[str, Any]

REASONS = {
    400: "BadRequest",
    401: "Unauthorized",
    403: "Forbidden",
    404: "NotFound",
    405: "MethodNotAllowed",
    409: "Conflict",
    410: "Expired",
    415: "UnsupportedMediaType",
    422: "Invalid",
    429: "TooManyRequests",
    500: "InternalError",
    503: "ServiceUnavailable",
    504: "Timeout",
}


class Refused(Exception):
    """An answer of kind Status."""

    def __init__(
        self,
        code: int,
        message: str,
        *,
        reason: str = "",
        details: Thing | None = None,
        more: Thing | None = None,
    ) -> None:
        super().__init__(message)
        self.code, self.message, self.reason = code, message, reason or REASONS.get(code, "Unknown")
        self.details, self.more = details or {}, more or {}

    def status(self) -> Thing:
        body: Thing = {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": self.more,
            "status": "Failure",
        }
        body |= {"message": self.message, "reason": self.reason, "code": self.code}
        return {**body, "details": self.details} if self.details else body


def missing(plural: str, name: str) -> Refused:
    return Refused(404, f'{plural} "{name}" not found', details={"name": name, "kind": plural})


def conflict(kind: str, name: str, why: str) -> Refused:
    return Refused(
        409,
        f'Operation cannot be fulfilled on {kind} "{name}": {why}',
        details={"name": name, "kind": kind},
    )


def invalid(kind: str, name: str, causes: Sequence[tuple[str, str, str]]) -> Refused:
    """Causes: reason, field, message."""
    words = [f"{field}: {message}" for _, field, message in causes]
    said = words[0] if len(words) == 1 else f"[{', '.join(words)}]"
    listed = [
        {"reason": reason, "field": field, "message": message} for reason, field, message in causes
    ]
    return Refused(
        422,
        f'{kind} "{name}" is invalid: {said}',
        details={"name": name, "kind": kind, "causes": listed},
    )


# -- patches ---------------------------------------------------------------------------------------


def merge(there: Any, patch: Any) -> Any:
    if not isinstance(patch, dict):
        return copy.deepcopy(patch)
    result = dict(there) if isinstance(there, dict) else {}
    for key, value in patch.items():
        if value is None:
            result.pop(key, None)
        else:
            result[key] = merge(result.get(key), value)
    return result


MERGE_KEYS = {
    "containers": "name", "initContainers": "name", "volumes": "name", "env": "name",
    "conditions": "type", "ownerReferences": "uid", "taints": "key", "addresses": "type",
    "podIPs": "ip", "ports": "containerPort", "volumeMounts": "mountPath",
}  # fmt: skip


def strategic(there: Any, patch: Any, field: str = "") -> Any:
    if isinstance(patch, list):
        if field == "finalizers":
            return list(dict.fromkeys([*(there or []), *patch]))
        return (
            _strategic_list(there, patch, MERGE_KEYS[field])
            if field in MERGE_KEYS
            else copy.deepcopy(patch)
        )
    if not isinstance(patch, dict):
        return copy.deepcopy(patch)
    result = dict(there) if isinstance(there, dict) else {}
    for key, value in patch.items():
        if key.startswith("$deleteFromPrimitiveList/"):
            name = key.partition("/")[2]
            result[name] = [item for item in result.get(name) or [] if item not in value]
        elif value is None:
            result.pop(key, None)
        elif not key.startswith("$"):
            result[key] = strategic(result.get(key), value, key)
    return result


def _strategic_list(there: Any, patch: list[Any], key: str) -> list[Any]:
    result = copy.deepcopy(there) if isinstance(there, list) else []
    for item in patch:
        at = next((i for i, other in enumerate(result) if other.get(key) == item.get(key)), None)
        if item.get("$patch") == "delete":
            if at is not None:
                result.pop(at)
        elif at is None:
            result.append(copy.deepcopy(item))
        else:
            result[at] = strategic(result[at], item)
    return result


def json_patch(there: Thing, steps: list[Thing]) -> Thing:
    result = copy.deepcopy(there)
    for step in steps:
        parts = [part.replace("~1", "/").replace("~0", "~") for part in step["path"].split("/")[1:]]
        try:
            _json_step(result, parts, step)
        except (KeyError, IndexError, TypeError, AttributeError, ValueError):
            raise Refused(
                422, "the server rejected our request due to an error in our request"
            ) from None
    return result


def _json_step(result: Any, parts: list[str], step: Thing) -> None:
    at = result
    for part in parts[:-1]:
        at = at[int(part)] if isinstance(at, list) else at[part]
    is_list = isinstance(at, list)
    last: Any = int(parts[-1]) if is_list and parts[-1] != "-" else parts[-1]
    if step["op"] == "test":
        if at[last] != step["value"]:
            raise ValueError(parts)
    elif step["op"] == "remove":
        at.pop(last)
    elif is_list and step["op"] == "add":
        at.insert(len(at) if last == "-" else last, step["value"])
    elif step["op"] == "replace" and not is_list and last not in at:
        raise KeyError(last)
    else:
        at[last] = step["value"]


# -- selectors -------------------------------------------------------------------------------------

LABEL_NAME = re.compile(
    r"(?:[a-z0-9]([-a-z0-9.]*[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?"
)
LABEL_VALUE = re.compile(r"([A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?")
POD_FIELDS = (
    "metadata.name", "metadata.namespace", "spec.nodeName", "spec.restartPolicy",
    "spec.schedulerName", "spec.serviceAccountName", "status.phase", "status.podIP",
    "status.nominatedNodeName", "spec.hostNetwork",
)  # fmt: skip
Term = tuple[str, str, frozenset[str]]  # key, operator, values


def parse_labels(selector: str) -> list[Term]:
    terms: list[Term] = []
    for said in re.findall(r"(?:[^,(]|\([^)]*\))+", selector):
        term = said.strip()
        if found := re.fullmatch(r"([^\s!=]+)\s+(in|notin)\s+\(([^)]*)\)", term):
            key, operator, values = (
                found[1],
                found[2],
                frozenset(value.strip() for value in found[3].split(",")),
            )
        elif found := re.fullmatch(r"([^!=]+)!=(.*)", term):
            key, operator, values = found[1].strip(), "notin", frozenset([found[2].strip()])
        elif found := re.fullmatch(r"([^=]+)==?(.*)", term):
            key, operator, values = found[1].strip(), "in", frozenset([found[2].strip()])
        elif term.startswith("!"):
            key, operator, values = term[1:].strip(), "absent", frozenset()
        else:
            key, operator, values = term, "exists", frozenset()
        if not LABEL_NAME.fullmatch(key) or not all(map(LABEL_VALUE.fullmatch, values)):
            raise Refused(400, f"unable to parse requirement: {term!r}")
        terms.append((key, operator, values))
    return terms


def has_labels(terms: list[Term], thing: Thing) -> bool:
    labels = thing["metadata"].get("labels") or {}
    for key, operator, values in terms:
        there = key in labels
        fits = {
            "exists": there,
            "absent": not there,
            "in": there and labels[key] in values,
            "notin": labels.get(key) not in values,
        }
        if not fits[operator]:
            return False
    return True


def parse_fields(selector: str, plural: str) -> list[tuple[str, bool, str]]:
    """Path, wanted equal, value."""
    terms = []
    for term in filter(None, selector.split(",")):
        path, operator, value = (
            re.split(r"(!=|==?)", term, maxsplit=1) if "=" in term else (term, "", "")
        )
        known = (
            POD_FIELDS
            if plural == "pods"
            else (
                "metadata.name",
                "metadata.namespace",
                *(("type",) if plural == "secrets" else ()),
            )
        )
        if path not in known or not operator:
            raise Refused(
                400,
                (
                    f'Unable to find "{plural}" that match label selector "", field selector '
                    f'"{selector}": field label not supported: {path}'
                ),
            )
        terms.append((path, operator != "!=", value))
    return terms


def has_fields(terms: list[tuple[str, bool, str]], thing: Thing) -> bool:
    for path, wanted, value in terms:
        at: Any = thing
        for part in path.split("."):
            at = at.get(part, "") if isinstance(at, dict) else ""
        if (str(at) == value) != wanted:
            return False
    return True
