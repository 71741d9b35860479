"""Clients can follow the links of the OpenAPI schema: create → read → change → delete."""

from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import urlencode

import pytest
import schemathesis
from django.db import transaction
from hypothesis import HealthCheck, Phase, seed, settings
from hypothesis.stateful import run_state_machine_as_test
from schemathesis.specs.openapi.stateful import OpenAPIStateMachine

from project.schema_links import PARAMETER
from tests import random_steps
from tests.api.conftest import Answer, Callers
from tests.api.test_schema import CONFORM, SECRET, callers, one_connection, somebody
from tests.api.test_schema import schema as unlinked
from tests.api.world import World

__all__ = ["callers", "one_connection", "somebody"]

# Bodies that the API accepts, for three of the four calls that create rows.
ACCEPTED: dict[str, Callable[[int], dict[str, Any]]] = {
    "POST /api/v1/claims/": lambda number: {"pool": "one", "kind": "slot"},
    "POST /api/v1/grants/": lambda number: {"user": "holder", "role": "viewer", "pool": "two"},
    "POST /api/v1/pools/": lambda number: {"name": f"made-{number}", "slots": 1},
    "POST /api/v1/tokens/": lambda number: {"name": f"made-{number}"},
    "POST /api/v1/pools/{pool_name}/members/": lambda number: {
        "members": [{"name": f"m-{number}"}]
    },
}
SOON = (datetime.now(UTC) + timedelta(hours=1)).isoformat()
# Each step: what is called by a link of an answer before it, and its body.
CHAINS = {
    "claim": [
        ("create_claim", {"pool": "one", "kind": "slot"}),
        ("get_claim", None),
        ("prioritise_claim", {"priority": 5}),
        ("cancel_claim", {}),
    ],
    "claim that is bound": [
        ("create_claim", {"pool": "two", "kind": "slot"}),
        ("get_claim", None),
        ("release_claim", {}),
    ],
    "pool": [
        ("create_pool", {"name": "linked", "slots": 1}),
        ("get_pool", None),
        ("change_pool", {"description": "Linked."}),
        ("delete_pool", None),
    ],
    "members of a pool": [
        ("create_pool", {"name": "linked", "slots": 1}),
        ("add_members", {"members": [{"name": "m"}]}),
        ("get_member", None),
        ("cordon_member", {"reason": "A test."}),
        ("remove_member", {"reason": "A test."}),
    ],
    "secret": [
        ("list_pools", None),
        ("list_secrets", None),
        ("delete_secret", None),
    ],
    "token": [("create_token", {"name": "linked"}), ("get_token", None), ("revoke_token", None)],
    "grant": [
        ("create_grant", {"user": "holder", "role": "viewer", "pool": "two"}),
        ("delete_grant", None),
    ],
    "slot": [("list_slots", None), ("get_slot_holder", None)],
    "member that drains": [
        ("create_pool", {"name": "linked", "slots": 1}),
        ("add_members", {"members": [{"name": "m"}]}),
        ("edit_member", {"deletion_cost": 3}),
        ("drain_member", {"reason": "A test."}),
        ("get_drain", None),
    ],
    "slot in quarantine": [
        ("list_slots", None),
        ("quarantine_slot", {"reason": "A test."}),
        ("end_quarantine", {"reason": "A test."}),
    ],
    "pool that is paused": [
        ("create_pool", {"name": "linked", "slots": 1}),
        ("pause_pool", {"until": SOON, "reason": "A test."}),
        ("resume_pool", {}),
    ],
    "workspace": [
        ("list_workspaces", None),
        ("get_workspace", None),
        ("lock_workspace", {"reason": "A test."}),
        ("unlock_workspace", {"reason": "A test."}),
        ("list_workspace_runs", None),
    ],
}


@pytest.fixture(scope="module")
def schema() -> Any:
    """The schema with its own links only, without links that Schemathesis infers."""
    schema = schemathesis.openapi.from_dict(unlinked.raw_schema)
    schema.app = unlinked.app
    schema.config.phases.stateful.inference.algorithms = []
    return schema.exclude(path_regex="^/api/v1/agent/")


def declared(schema: Any) -> list[tuple[str, str, dict[str, Any]]]:
    """Each link: the label of its source, the id of its target, its definition."""
    components = schema.raw_schema["components"]["links"]
    return [
        (f"{method.upper()} {path}", link["operationId"], link)
        for path, methods in schema.raw_schema["paths"].items()
        for method, operation in methods.items()
        for answer in operation["responses"].values()
        for link in (components[name] for name in answer.get("links", {}))
    ]


def test_each_link_gives_all_path_parameters_of_its_target(schema: Any) -> None:
    paths = {
        operation["operationId"]: path
        for path, methods in schema.raw_schema["paths"].items()
        for operation in methods.values()
    }
    links = declared(schema)
    assert links
    for source, target, link in links:
        given = set(link["parameters"]) - {"If-Match"}
        assert given == set(PARAMETER.findall(paths[target])), (source, target)


@pytest.mark.parametrize("chain", CHAINS.values(), ids=CHAINS)
def test_links_lead_from_a_first_answer_to_the_last_change(
    schema: Any, world: World, caller: Callers, chain: list[tuple[str, Any]]
) -> None:
    ask = caller("superuser")
    components = schema.raw_schema["components"]["links"]
    links: dict[str, tuple[dict[str, Any], dict[str, str], Answer]] = {}
    for target, body in chain:
        path, method, operation = find(schema, target)
        values, headers = {}, {}
        if target in links:
            link, taken, told = links[target]
            values = {
                name: value_of(expression, taken, told)
                for name, expression in link["parameters"].items()
            }
            headers = {name: values.pop(name) for name in ("If-Match",) if name in values}
            for name, expression in link.get("requestBody", {}).items():
                body = body | {name: value_of(expression, taken, told)}
        address = path.removeprefix("/api/v1/").format(**values)
        if method == "DELETE":
            address, body = f"{address}?{urlencode(body or {})}", None
        answer = ask(method, address, body, **headers)
        assert answer.status in (200, 201, 202, 204), (target, path, values, answer.body)
        for name in operation["responses"][str(answer.status)].get("links", {}):
            links[components[name]["operationId"]] = components[name], values, answer


def find(schema: Any, name: str) -> tuple[str, str, dict[str, Any]]:
    """Path, method and definition of the operation."""
    return next(
        (path, method.upper(), operation)
        for path, methods in schema.raw_schema["paths"].items()
        for method, operation in methods.items()
        if operation["operationId"] == name
    )


def value_of(expression: str, taken: dict[str, str], told: Answer) -> Any:
    """The value of a runtime expression, for these path parameters and this answer."""
    if expression.startswith("$request.path."):
        return taken[expression.removeprefix("$request.path.")]
    if expression.startswith("$response.header."):
        return told.headers[expression.removeprefix("$response.header.")]
    value = told.body
    for name in expression.removeprefix("$response.body#/").split("/"):
        value = value[int(name)] if isinstance(value, list) else value[name]
    return value


@pytest.mark.usefixtures("somebody")
def test_linked_calls_conform_to_the_schema(schema: Any) -> None:
    followed: Counter[str] = Counter()
    machine: type[OpenAPIStateMachine] = schema.as_state_machine()

    class LinkedCalls(machine):  # type: ignore[misc, valid-type]
        def setup(self) -> None:
            self.calls = 0  # of this example: it must be the same when Hypothesis repeats it
            self.changes = transaction.atomic()
            self.changes.__enter__()

        def teardown(self) -> None:
            transaction.set_rollback(True)
            self.changes.__exit__(None, None, None)

        def before_call(self, case: Any) -> None:
            self.calls += 1
            make_body = ACCEPTED.get(case.operation.label)
            if make_body is not None and self.calls % 4:
                case.body, case.media_type = make_body(self.calls), "application/json"

        def get_call_kwargs(self, case: Any) -> dict[str, Any]:
            return {"headers": {"Authorization": f"Bearer {SECRET['is']}"}}

        def step(self, input: Any) -> Any:
            # One savepoint for each call: a fault in one must not fail the next.
            with transaction.atomic():
                output = super().step(input)
            if input.transition and input.is_applied and output.response.status_code < 300:
                followed[input.case.operation.label] += 1
            return output

        def validate_response(self, response: Any, case: Any, **more: Any) -> None:
            headers = self.get_call_kwargs(case)
            case.validate_response(response, checks=CONFORM, transport_kwargs=headers)

    chosen = settings(
        max_examples=random_steps.examples(20, long=50 * len(schema)),
        phases=[Phase.generate],
        stateful_step_count=8,
        suppress_health_check=list(HealthCheck),
    )
    if random_steps.given_seed is not None:
        seed(random_steps.given_seed)(LinkedCalls)
    run_state_machine_as_test(LinkedCalls, settings=chosen)
    assert followed.total() >= 3, f"too few links led to a success: {followed}"
