"""Who can sign in first."""

from pathlib import Path
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.core.management import call_command

from pools.access import load_identity


@pytest.mark.django_db
def test_the_first_user_may_do_everything_also_decide(settings: Any, tmp_path: Path) -> None:
    settings.BERTH_HOME = tmp_path
    call_command("prepare")
    identity = load_identity(User.objects.get(username="admin").pk)
    assert identity is not None
    assert all(identity.may(action, None) for action in ("read", "cordon", "decide", "configure", "grant"))
    call_command("prepare")
    assert User.objects.count() == 1
