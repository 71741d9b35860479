"""Every answer of the API conforms to its schema, for generated requests."""

from collections import defaultdict
from collections.abc import Iterable, Iterator
from random import Random
from typing import Any
from zlib import crc32

import pytest
import schemathesis
from django.contrib.auth.models import User
from django.core.signals import request_finished, request_started
from django.core.wsgi import get_wsgi_application
from django.db import close_old_connections, connection, transaction
from hypothesis import HealthCheck, settings
from schemathesis.checks import (
    content_type_conformance,
    not_a_server_error,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
    unsupported_method,
)
from schemathesis.generation import GenerationMode, derive_operation_seed
from schemathesis.generation.drivers import CoverageGenerator
from schemathesis.generation.feedback import FeedbackSources
from schemathesis.generation.hypothesis.builder import (
    HypothesisTestConfig,
    HypothesisTestMode,
    create_test,
)
from schemathesis.generation.overrides import Override

from pools.access.permissions import ROLES
from pools.access.tokens import create_token
from pools.roles.services import create_grant
from slots.members.tokens import issue_token
from tests import random_steps
from tests.api.schema_checks import refuses_what_is_wrong
from tests.api.world import World
from tests.claims.tasks.agent_api.conftest import make_agents, make_claim

SECRET: dict[str, str] = {}
IDS: dict[str, Any] = {}
AGENT_IDS: dict[str, Any] = {}
AGENT = "/api/v1/agent/"

CONFORM = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
    refuses_what_is_wrong,
    unsupported_method,
]
# Of each operation, beside those at the edges.
EXAMPLES = random_steps.examples(6, long=50)
MANY_EDGES = 500  # A pool has 2,000: most are the same field in each branch of `anyOf`.

schema = schemathesis.openapi.from_wsgi("/api/schema/?format=json", get_wsgi_application())
if random_steps.given_seed is not None:  # else Schemathesis would choose a seed of its own
    schema.config.seed = random_steps.given_seed
OPERATIONS = {result.ok().label: result.ok() for result in schema.get_all_operations()}


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


@pytest.fixture(scope="module")
def callers(standing: World, django_db_blocker: Any) -> None:
    """A user with every role, so that each call passes the checks of roles, and an agent with a
    task.
    """
    with django_db_blocker.unblock():
        # A busy machine needs more than 10 s to make the edges of a pool.
        with connection.cursor() as cursor:
            cursor.execute("SET LOCAL idle_in_transaction_session_timeout = 0")
        user = User.objects.create_user("root", is_superuser=True)
        for role in ROLES:
            create_grant(role=role, user=user)
        SECRET["is"] = create_token(user=user, name="schema")[1]
        pool = make_agents("schema-agents")
        claim = make_claim(pool, "plan_and_apply")
        SECRET["agent"] = issue_token(member_id=claim.slots[0].member_id)
    AGENT_IDS.update(claim_id=claim.id, generation=claim.generation)
    IDS.update(
        claim_id=standing.claim, member_id=standing.member, slot_id=standing.slot,
        token_id=standing.token, grant_id=standing.grant, pool_name="one",
        workspace="one/team/net", secret_name="PASSWORD", generation=standing.generation,
    )  # fmt: skip


@pytest.fixture
def somebody(callers: None, world: World, one_connection: None) -> None:
    """The callers, on the world of this test."""


@pytest.mark.parametrize("label", OPERATIONS)
@pytest.mark.usefixtures("somebody")
def test_every_answer_conforms_to_the_schema(label: str) -> None:
    operation = OPERATIONS[label]
    for case in edges(operation):
        call(case)
    config = HypothesisTestConfig(
        project=schema.config,
        modes=[HypothesisTestMode.EXAMPLES, HypothesisTestMode.FUZZING],
        explicit_settings=settings(max_examples=EXAMPLES, suppress_health_check=list(HealthCheck)),
        seed=derive_operation_seed(random_steps.given_seed, label),
    )
    create_test(operation=operation, test_func=call, config=config)()


def call(case: Any) -> None:
    with transaction.atomic():
        secret = SECRET["agent" if case.operation.path.startswith(AGENT) else "is"]
        case.call_and_validate(headers={"Authorization": f"Bearer {secret}"}, checks=CONFORM)
        transaction.set_rollback(True)


def edges(operation: Any) -> Iterable[Any]:
    """Requests at the edges of what the schema allows: each limit of each field, right and wrong.
    Made here and not while tests are collected, because each parallel worker collects all tests.
    """
    cases = list(
        CoverageGenerator(
            operation=operation,
            generation_modes=list(GenerationMode),
            generation_config=schema.config.generation_for(operation=operation, phase="coverage"),
            auth_storage=None,
            override=Override(),
            feedback=FeedbackSources(),
        )
    )
    if len(cases) < MANY_EDGES or random_steps.is_long():
        return cases
    alike = defaultdict(list)
    for case in cases:
        edge = case.meta.phase.data
        alike[edge.scenario, edge.description, case.method].append(case)
    random = Random(f"{random_steps.given_seed} {operation.label}")
    return map(random.choice, alike.values())
