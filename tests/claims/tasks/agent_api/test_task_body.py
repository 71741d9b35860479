"""Variables and environment of a task are sealed in the database and told only to its agent."""

import json
from importlib import import_module
from typing import Any

import pytest
from django.core.management import call_command
from django.db import connection

from claims.allocation.create import create_claim
from claims.allocation.requests.claim_request import ClaimRequest
from claims.models import Task
from claims.tasks import task_body
from claims.tasks.run_spec import RunRequest
from pools.models import Pool
from project.kernel.security import encryption
from tests.api.helpers import make_pool
from tests.claims.tasks.agent_api.conftest import Agent, make_claim

pytestmark = pytest.mark.django_db
PASSWORD, KEY = "hunter2-of-a-variable", "hunter3-of-the-environment"
VALUES = {"variables": {"password": PASSWORD, "count": 3}, "env": {"API_KEY": KEY}}
migration = import_module("claims.migrations.0014_sealed_tasks")


def make_task(pool: Pool, **fields: Any) -> Any:
    run = RunRequest(
        "terraform",
        variables=json.dumps(VALUES["variables"]),
        env=tuple(VALUES["env"].items()),
        **fields,
    )
    return create_claim(
        ClaimRequest(pools=(pool.name,), kind="plan", task="plan", requested_by="ana", work=run)
    )


def tells() -> bool:
    """Whether a value stands anywhere in the database, as text or as bytes."""
    with connection.cursor() as cursor:
        tables = connection.introspection.table_names(cursor)
        cursor.execute(" UNION ALL ".join(f'SELECT t::text FROM "{table}" t' for table in tables))
        text = "\n".join(row[0] for row in cursor.fetchall())
    return any(word in text or word.encode().hex() in text for word in (PASSWORD, KEY))


def work_of(agent: Agent, claim: Any) -> dict[str, Any]:
    body = agent.get(f"tasks/{claim.id}/{claim.generation}/").body
    return {name: body[name] for name in ("variables", "env")}


def keep_as_before(claim: Any) -> None:
    """The row as a process of an earlier release writes it."""
    body = Task.objects.get(claim_id=claim.id).body
    Task.objects.filter(claim_id=claim.id).update(body={**body, **VALUES}, sealed=None)


def test_variables_and_environment_are_not_readable_in_the_database(
    agent: Agent, pool: Pool
) -> None:
    claim = make_task(pool)
    assert not tells()
    assert work_of(agent, claim) == VALUES


def test_an_unsealed_task_of_an_earlier_release_is_read(agent: Agent, pool: Pool) -> None:
    claim = make_task(pool)
    keep_as_before(claim)
    assert tells() and work_of(agent, claim) == VALUES


def test_the_migration_seals_tasks_and_its_reverse_opens_them(agent: Agent, pool: Pool) -> None:
    sealed, old, plain = make_task(pool), make_task(pool), make_claim(pool)
    keep_as_before(old)
    with connection.schema_editor() as editor:
        migration.seal_tasks(None, editor)
    assert not tells()
    assert [work_of(agent, claim) for claim in (sealed, old)] == [VALUES, VALUES]
    assert Task.objects.get(claim_id=plain.id).sealed is None
    with connection.schema_editor() as editor:
        migration.open_tasks(None, editor)
    assert not Task.objects.exclude(sealed=None).exists()
    assert Task.objects.get(claim_id=sealed.id).body["variables"] == VALUES["variables"]


def test_the_migration_without_a_key_leaves_tasks_readable(
    agent: Agent, pool: Pool, settings: Any, capsys: Any
) -> None:
    claim = make_task(pool)
    keep_as_before(claim)
    key = settings.BERTH_MAKES_SEALING_KEY
    settings.BERTH_MAKES_SEALING_KEY = False
    encryption.write_file([])
    encryption.forget()
    with connection.schema_editor() as editor:
        migration.seal_tasks(None, editor)
    settings.BERTH_MAKES_SEALING_KEY = key
    assert "manage.py reseal" in capsys.readouterr().err
    assert work_of(agent, claim) == VALUES


def test_reseal_seals_old_tasks_and_changes_the_key_of_the_others(agent: Agent, pool: Pool) -> None:
    sealed, old = make_task(pool), make_task(pool)
    keep_as_before(old)
    encryption.write_file([encryption.make_key(), *encryption.read_file()])
    encryption.forget()
    call_command("reseal")
    assert {
        encryption.is_current(bytes(row.sealed)) for row in Task.objects.all() if row.sealed
    } == {True}
    encryption.write_file(encryption.read_file()[:1])
    encryption.forget()
    assert [work_of(agent, claim) for claim in (sealed, old)] == [VALUES, VALUES]
    assert not tells()


def test_claims_without_task_values_are_created_without_sealing(
    pool: Pool, monkeypatch: pytest.MonkeyPatch
) -> None:
    def seal(data: bytes) -> bytes:
        raise AssertionError("sealing costs time that such a claim does not owe")

    monkeypatch.setattr(task_body, "seal", seal)
    plain = make_pool("plain")
    assert create_claim(ClaimRequest(pools=(plain.name,), requested_by="ana")).id
    assert make_claim(pool).id


def test_an_earlier_release_fails_on_a_sealed_task_instead_of_running_it(
    pool: Pool,
) -> None:
    body = Task.objects.get(claim_id=make_task(pool).id).body
    with pytest.raises(TypeError):
        {**body["env"]}  # as that release put the environment together
    assert not isinstance(body["variables"], dict)  # which its agent refuses
