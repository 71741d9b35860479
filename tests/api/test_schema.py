"""Every answer of the API conforms to its schema, for generated requests."""

import re
from collections.abc import Iterator
from typing import Any
from zlib import crc32

import pytest
import schemathesis
from django.contrib.auth.models import User
from django.core.signals import request_finished, request_started
from django.core.wsgi import get_wsgi_application
from django.db import close_old_connections, transaction
from hypothesis import HealthCheck, settings
from schemathesis.checks import (
    content_type_conformance,
    negative_data_rejection,
    not_a_server_error,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
    unsupported_method,
)
from schemathesis.core.parameters import ParameterLocation

from pools.access.permissions import ROLES
from pools.access.tokens import create_token
from pools.roles.services import create_grant
from slots.members.tokens import issue_token
from tests.api.world import World
from tests.claims.tasks.agent_api.conftest import make_agents, make_claim

SECRET: dict[str, str] = {}
IDS: dict[str, Any] = {}
AGENT_IDS: dict[str, Any] = {}
AGENT = "/api/v1/agent/"


def refuses_what_is_wrong(context: Any, response: Any, case: Any) -> Any:
    """An unknown field, a wrong type, a value out of its range, in a body or a query: 4xx, never
    taken for something else. Left out: paths and callers, which this file puts in place; null,
    which means left out; and bulk calls, which answer item by item."""
    parts = case.meta.components if case.meta is not None else {}
    is_wrong = any(
        where in parts and parts[where].mode.is_negative
        for where in (ParameterLocation.BODY, ParameterLocation.QUERY)
    )
    if not is_wrong or BULK.search(case.operation.path) or has_null(case.body):
        return None
    if response.status_code == 412:  # If-Match names an old revision, so the body is not read
        return None
    return negative_data_rejection(context, response, case)


def has_null(body: Any) -> bool:
    if isinstance(body, dict):
        return any(map(has_null, body.values()))
    return any(map(has_null, body)) if isinstance(body, list) else body is None


CONFORM = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
    refuses_what_is_wrong,
    unsupported_method,
]
BULK = re.compile(r"/(bulk|bulk-release)/$")
EXAMPLES = 6  # of each operation, beside those at the edges; seeded, so that a failure comes again

schema = schemathesis.openapi.from_wsgi("/api/schema/?format=json", get_wsgi_application())


@schema.hook
def map_path_parameters(context: Any, path_parameters: Any) -> Any:
    """Half of the time what is there; for an agent, what is on its member."""
    known = AGENT_IDS if context.operation.path.startswith(AGENT) else IDS
    if path_parameters:
        for name, value in path_parameters.items():
            if name in known and crc32(str(value).encode()) % 2:
                path_parameters[name] = known[name]
    return path_parameters


@pytest.fixture
def one_connection() -> Iterator[None]:
    """Requests share the test's transaction, as with Django's own test client."""
    for signal in (request_started, request_finished):
        signal.disconnect(close_old_connections)
    yield
    for signal in (request_started, request_finished):
        signal.connect(close_old_connections)


@pytest.fixture
def somebody(world: World, one_connection: None) -> None:
    """Who may everything, so that calls get past the door."""
    user = User.objects.create_user("root", is_superuser=True)
    for role in ROLES:
        create_grant(role=role, user=user)
    SECRET["is"] = create_token(user=user, name="schema")[1]
    pool = make_agents("schema-agents")
    claim = make_claim(pool, "plan_and_apply")
    SECRET["agent"] = issue_token(member_id=claim.slots[0].member_id)
    AGENT_IDS.update(claim_id=claim.id, generation=claim.generation)
    IDS.update(
        claim_id=world.claim, member_id=world.member, slot_id=world.slot, token_id=world.token,
        grant_id=world.grant, pool_name="one", workspace="one/team/net", secret_name="PASSWORD",
        generation=world.generation,
    )  # fmt: skip


@schema.parametrize()
@settings(
    max_examples=EXAMPLES,
    derandomize=True,
    deadline=None,
    database=None,
    suppress_health_check=list(HealthCheck),
)
@pytest.mark.usefixtures("somebody")
def test_every_answer_conforms_to_the_schema(case: Any) -> None:
    with transaction.atomic():
        secret = SECRET["agent" if case.operation.path.startswith(AGENT) else "is"]
        case.call_and_validate(headers={"Authorization": f"Bearer {secret}"}, checks=CONFORM)
        transaction.set_rollback(True)
