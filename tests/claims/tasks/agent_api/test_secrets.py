"""Secrets of a pool are written and listed by name, never shown, and resealed with a new key."""

import io
from typing import Any

import pytest
from django.core.management import call_command
from django.db import connection

from pools.models import Pool, Secret
from pools.secrets.services import MAX_SECRET_LENGTH, read_secrets, set_secret
from project.kernel.errors import Invalid
from project.kernel.security import encryption
from tests.api.conftest import Callers

pytestmark = pytest.mark.django_db
VALUE = "hunter2-is-not-a-good-password"


def everything() -> str:
    """All that a dump of the database would tell of it."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT string_agg(e::text, '') FROM kernel_event e")
        told = cursor.fetchone()[0] or ""
        cursor.execute(
            "SELECT string_agg(encode(ciphertext, 'escape') || name || key_id, '') "
            "FROM pools_secret"
        )
        return told + (cursor.fetchone()[0] or "")


def test_secrets_are_listed_by_name_and_their_values_never_shown(
    pool: Pool, caller: Callers
) -> None:
    admin = caller("admin", pool)
    first = admin("PUT", f"pools/{pool.name}/secrets/DB_PASSWORD/", {"value": VALUE})
    again = admin(
        "PUT",
        f"pools/{pool.name}/secrets/DB_PASSWORD/",
        {"value": VALUE + "2", "reason": "rotated"},
    )
    assert (first.status, again.status) == (201, 200)
    assert admin("PUT", f"pools/{pool.name}/secrets/API_KEY/", {"value": VALUE}).status == 201
    listed = admin.get(f"pools/{pool.name}/secrets/")
    assert [each["name"] for each in listed.body["results"]] == ["API_KEY", "DB_PASSWORD"]
    for told in (first, again, listed, everything()):
        assert VALUE not in str(told)
    assert admin.get(f"pools/{pool.name}/secrets/API_KEY/").status == 405
    assert read_secrets(pool.pk, ["DB_PASSWORD", "NONE"]) == {
        "DB_PASSWORD": VALUE + "2",
        "NONE": None,
    }
    assert admin("DELETE", f"pools/{pool.name}/secrets/API_KEY/?reason=unused").status == 204
    assert admin("DELETE", f"pools/{pool.name}/secrets/API_KEY/").status == 404
    assert read_secrets(pool.pk, ["API_KEY"]) == {"API_KEY": None}


@pytest.mark.parametrize("role", ["viewer", "claimant", "approver", "operator"])
def test_only_admins_manage_secrets(role: str, pool: Pool, caller: Callers) -> None:
    who = caller(role, pool)
    for method, body in (("PUT", {"value": VALUE}), ("DELETE", None)):
        assert who(method, f"pools/{pool.name}/secrets/A/", body).status == 403
    assert who.get(f"pools/{pool.name}/secrets/").status == 403


@pytest.mark.parametrize("value", ["", "x" * (MAX_SECRET_LENGTH + 1), "nul\x00", None, [VALUE]])
def test_an_invalid_secret_value_is_refused_without_being_repeated(
    value: Any, pool: Pool, caller: Callers
) -> None:
    answer = caller("admin", pool)("PUT", f"pools/{pool.name}/secrets/A/", {"value": value})
    assert answer.status == 400 and VALUE not in str(answer.body)
    if not (isinstance(value, str) and "\x00" in value):  # JSON with a NUL is refused as a whole
        assert answer.body["errors"][0]["field"] == "value"


@pytest.mark.parametrize("name", ["1A", "A-B", "BERTH_TOKEN", "A" * 64, ""])
def test_an_invalid_secret_name_is_refused(name: str, pool: Pool) -> None:
    with pytest.raises(Invalid):
        set_secret(pool_id=pool.pk, name=name, value=VALUE)


def test_whitespace_of_a_secret_is_kept(pool: Pool, caller: Callers) -> None:
    value = "  -----BEGIN KEY-----\n  abc\n-----END KEY-----\n"
    assert (
        caller("admin", pool)("PUT", f"pools/{pool.name}/secrets/KEY/", {"value": value}).status
        == 201
    )
    assert read_secrets(pool.pk, ["KEY"]) == {"KEY": value}


def test_secrets_are_resealed_with_a_new_key(pool: Pool, settings: Any) -> None:
    old, new = encryption.make_key(), encryption.make_key()
    settings.BERTH_SEALING_KEYS = [old]
    set_secret(pool_id=pool.pk, name="A", value=VALUE)
    settings.BERTH_SEALING_KEYS = [new, old]
    said = io.StringIO()
    call_command("reseal", stdout=said)
    assert "secrets: 1 resealed" in said.getvalue()
    settings.BERTH_SEALING_KEYS = [new]
    assert read_secrets(pool.pk, ["A"]) == {"A": VALUE}
    assert Secret.objects.get().key_id == encryption.key_id()
