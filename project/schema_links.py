"""OpenAPI links: which values of an answer are path parameters of which other operations.

`GET /api/v1/claims/` or `POST /api/v1/claims/` tell the id of a claim, which
`/api/v1/claims/{claim_id}/release/` takes. The links follow from the addresses and the schemas; no
operation declares them.
"""

import re
from typing import Any

PARAMETER = re.compile(r"{(\w+)}")
COLLECTION = re.compile(r"(\w+)/{(\w+)}")  # claims/{claim_id}
AGENT = "/api/v1/agent/"  # An agent takes ids from its orders, and has a token of its own.


def add_links(result: dict[str, Any], **context: object) -> dict[str, Any]:
    """Adds links to the answers of operations that read or create something. Postprocessing hook
    of drf-spectacular.
    """
    operations = [
        (method, path, set(PARAMETER.findall(path)), operation)
        for path, methods in result["paths"].items()
        if not path.startswith(AGENT)
        for method, operation in methods.items()
    ]
    parameters = dict(pair for _, path, _, _ in operations for pair in COLLECTION.findall(path))
    links = result["components"].setdefault("links", {})
    for method, path, own, operation in operations:
        for status, answer in operation["responses"].items():
            if status not in ("201", "202") and (method, status) != ("get", "200"):
                continue
            values = find_values(result, path, answer, parameters)
            known = set(values)
            values |= {name: f"$request.path.{name}" for name in sorted(own - known)}
            for _, _, taken, target in operations:
                if target is not operation and taken <= set(values) and taken & known:
                    link = make_link(result, answer, target, values)
                    key = name_link(links, target["operationId"], link)
                    answer.setdefault("links", {})[key] = {"$ref": f"#/components/links/{key}"}
    return result


def find_values(
    result: dict[str, Any], path: str, answer: dict[str, Any], parameters: dict[str, str]
) -> dict[str, str]:
    """Runtime expressions of the path parameters that this answer tells. A list tells those of its
    first row.
    """
    content = answer.get("content", {}).get("application/json", {})
    shape = resolve(result, content.get("schema", {}))
    root = "$response.body#"
    if "results" in shape.get("properties", {}):
        shape = resolve(result, shape["properties"]["results"].get("items", {}))
        root += "/results/0"
    fields = shape.get("properties", {})
    names = set(parameters.values())
    known = {name for name in names & set(fields) if name.endswith("_id")}
    values = {name: f"{root}/{name}" for name in sorted(known)}
    last = re.search(r"(\w+)/(?:{(\w+)}/)?$", path)
    if last is not None and last[1] in parameters:
        name = parameters[last[1]]
        field = "id" if name.endswith("_id") else "name"
        if field in fields:
            values[name] = f"{root}/{field}"
    if "generation" in fields:
        values["generation"] = f"{root}/generation"
    return values


def make_link(
    result: dict[str, Any], answer: dict[str, Any], target: dict[str, Any], values: dict[str, str]
) -> dict[str, Any]:
    """A link from this answer to `target`. It has If-Match where the answer tells a revision, and
    a body where the answer tells all fields that the body needs.
    """
    places = {each["name"]: each["in"] for each in target.get("parameters", [])}
    parameters = {name: values[name] for name, place in places.items() if place == "path"}
    if "If-Match" in places and "ETag" in answer.get("headers", {}):
        parameters["If-Match"] = "$response.header.ETag"
    link: dict[str, Any] = {"operationId": target["operationId"], "parameters": parameters}
    content = target.get("requestBody", {}).get("content", {}).get("application/json", {})
    needed = resolve(result, content.get("schema", {})).get("required", [])
    if needed and set(needed) <= set(values):
        link["requestBody"] = {name: values[name] for name in needed}
    return link


def name_link(links: dict[str, Any], operation_id: str, link: dict[str, Any]) -> str:
    """The name of an equal link of the components, or of a new one."""
    for number in range(1, len(links) + 2):
        name = operation_id if number == 1 else f"{operation_id}_{number}"
        if links.setdefault(name, link) == link:
            return name
    raise AssertionError("there is always a free number")


def resolve(result: dict[str, Any], schema: dict[str, Any]) -> dict[str, Any]:
    """The schema, or the component that it refers to."""
    if "$ref" not in schema:
        return schema
    found: dict[str, Any] = result["components"]["schemas"][schema["$ref"].rpartition("/")[2]]
    return found
